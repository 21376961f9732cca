package config

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// NATS says how to reach the NATS servers.
type NATS struct {
	// URL may list several servers, separated by commas.
	URL string `env:"NATS_URL, default=nats://127.0.0.1:4222" secret:"userinfo" help:"NATS servers, separated by commas; nats, tls, ws or wss"`
	// Creds, or User and Password, or Token: at most one way to authenticate.
	Creds    string `env:"NATS_CREDS" help:"file with NATS credentials"`
	User     string `env:"NATS_USER" help:"user at NATS"`
	Password string `env:"NATS_PASSWORD" secret:"true" help:"password of NATS_USER"`
	Token    string `env:"NATS_TOKEN" secret:"true" help:"token at NATS, in place of a user"`
}

// Validate finds malformed URLs and credentials that exclude each other.
func (c NATS) Validate() error {
	var problems []error
	for server := range strings.SplitSeq(c.URL, ",") {
		if why := badServer(strings.TrimSpace(server)); why != "" {
			problems = append(problems, fmt.Errorf("NATS_URL=%q: %s; must be nats://host:port, or several separated by commas",
				maskUserinfo(c.URL), why))
			break
		}
	}
	if c.Password != "" && c.User == "" {
		problems = append(problems, errors.New("NATS_PASSWORD="+masked+": has no user; set NATS_USER too"))
	}
	if c.Creds != "" && (c.User != "" || c.Token != "") {
		problems = append(problems, fmt.Errorf("NATS_CREDS=%q: excludes NATS_USER and NATS_TOKEN; set only one of them", c.Creds))
	} else if c.User != "" && c.Token != "" {
		problems = append(problems, fmt.Errorf("NATS_USER=%q: excludes NATS_TOKEN; set only one of them", c.User))
	}
	return errors.Join(problems...)
}

// badServer says what is wrong with the URL of a server. It does not quote it: it may hold a password.
func badServer(server string) string {
	u, err := url.Parse(server)
	switch {
	case server == "":
		return "a server is missing"
	case err != nil:
		return "not a URL"
	case u.Scheme != "nats" && u.Scheme != "tls" && u.Scheme != "ws" && u.Scheme != "wss":
		return "the scheme is not nats, tls, ws or wss"
	case u.Hostname() == "":
		return "no host"
	case u.Port() != "" && !validPort(u.Port()):
		return "the port is not 1 to 65535"
	}
	return ""
}

// Store says where and how the embedded NATS keeps the jobs.
type Store struct {
	Dir string `env:"DATA_DIR, default=/var/lib/sandbox-provisioner" help:"directory of the jobs; one program at a time"`
	// Sync is always: NATS otherwise acknowledges up to two minutes before it has synced, and a 202 must survive a power
	// cut. The cluster is slower than the disk, so nothing is gained by less.
	Sync SyncInterval `env:"NATS_SYNC_INTERVAL, default=always" help:"always, or the time between two syncs to the disk; what is younger may be lost"`
}

// Validate refuses a store without a place.
func (c Store) Validate() error {
	if c.Dir == "" {
		return errors.New(`DATA_DIR="": set but empty; must be a directory`)
	}
	return nil
}

// SyncInterval is the time between two syncs to the disk. Zero is a sync after every write.
type SyncInterval time.Duration

// Always tells whether every write is synced before it is acknowledged.
func (s SyncInterval) Always() bool { return s == 0 }

// UnmarshalText reads "always" or a duration.
func (s *SyncInterval) UnmarshalText(text []byte) error {
	if string(text) == "always" {
		*s = 0
		return nil
	}
	d, err := time.ParseDuration(string(text))
	if err != nil || d <= 0 {
		return errors.New("must be always or a duration above 0, such as 10s")
	}
	*s = SyncInterval(d)
	return nil
}

// MarshalText is the inverse of UnmarshalText.
func (s SyncInterval) MarshalText() ([]byte, error) {
	if s.Always() {
		return []byte("always"), nil
	}
	return []byte(time.Duration(s).String()), nil
}
