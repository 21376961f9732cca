package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/gin-gonic/gin"
)

// defaultKeyName is the name of the key that has none.
const defaultKeyName = "default"

var keyNamePattern = regexp.MustCompile(`^[a-z0-9]([-_.a-z0-9]{0,61}[a-z0-9])?$`)

// A NamedKey is a key, and who sends it.
type NamedKey struct{ Name, Key string }

// Keys are named keys.
type Keys []NamedKey

// UnmarshalText reads "name:key,name:key". Its errors show nothing of the text: where a name is missing, a key may stand.
func (k *Keys) UnmarshalText(text []byte) error {
	*k = nil
	if strings.TrimSpace(string(text)) == "" {
		return nil
	}
	for i, entry := range strings.Split(string(text), ",") {
		name, key, found := strings.Cut(strings.TrimSpace(entry), ":")
		switch {
		case !found:
			return fmt.Errorf("entry %d is not name:key; must be name:key, or several separated by commas", i+1)
		case !keyNamePattern.MatchString(name):
			return fmt.Errorf("entry %d has a bad name; must be 1 to 63 of a-z, 0-9, -, _ and ., with a letter or digit first and last", i+1)
		case key == "":
			return fmt.Errorf("entry %d has an empty key", i+1)
		}
		for j, other := range *k {
			switch {
			case other.Name == name:
				return fmt.Errorf("entries %d and %d have the same name", j+1, i+1)
			case other.Key == key:
				return fmt.Errorf("entries %d and %d have the same key", j+1, i+1)
			}
		}
		*k = append(*k, NamedKey{name, key})
	}
	return nil
}

// MarshalText is the inverse of UnmarshalText.
func (k Keys) MarshalText() ([]byte, error) {
	entries := make([]string, len(k))
	for i, key := range k {
		entries[i] = key.Name + ":" + key.Key
	}
	return []byte(strings.Join(entries, ",")), nil
}

// checkKeys finds a key that is given twice. Who sends it could not be told.
func (c Config) checkKeys() error {
	var problems []error
	for _, key := range c.Keys {
		if c.Key == "" {
			break
		}
		if key.Name == defaultKeyName {
			problems = append(problems, errors.New("PROVISIONER_API_KEYS=******: the name default belongs to PROVISIONER_API_KEY; take another one, or unset that"))
		}
		if key.Key == c.Key {
			problems = append(problems, errors.New("PROVISIONER_API_KEYS=******: holds the key of PROVISIONER_API_KEY; take another one, or unset that"))
		}
	}
	return errors.Join(problems...)
}

// minHidden is the length of a key below which it would also be found in what is no key.
const minHidden = 8

// hider replaces keys in the words of somebody else. Nobody but clients and we should know one, but somebody may have put it where
// Kubernetes repeats it.
func (c Config) hider() *strings.Replacer {
	var pairs []string
	for _, key := range append(Keys{{defaultKeyName, c.Key}}, c.Keys...) {
		if len(key.Key) >= minHidden {
			pairs = append(pairs, key.Key, "******")
		}
	}
	return strings.NewReplacer(pairs...)
}

// hide is text without our keys.
func hide(c *gin.Context, text string) string {
	if hider, ok := c.Get(contextHider); ok {
		return hider.(*strings.Replacer).Replace(text)
	}
	return text
}

// contextHider is where authenticate leaves the hider.
const contextHider = "hider"

// A keyring knows the keys that open the API.
type keyring []struct {
	name string
	// hash is compared in place of the key, so that the comparison does not tell its length.
	hash [sha256.Size]byte
}

// keyring of all keys of the configuration.
func (c Config) keyring() keyring {
	all := c.Keys
	if c.Key != "" {
		all = append(Keys{{defaultKeyName, c.Key}}, all...)
	}
	ring := make(keyring, len(all))
	for i, key := range all {
		ring[i].name, ring[i].hash = key.Name, sha256.Sum256([]byte(key.Key))
	}
	return ring
}

// find tells whose key it is; empty when it is none. It compares with all keys, so that its time does not tell which one it is.
func (r keyring) find(key string) string {
	got := sha256.Sum256([]byte(key))
	found := -1
	for i := range r {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(got[:], r[i].hash[:]), i, found)
	}
	if found < 0 {
		return ""
	}
	return r[found].name
}
