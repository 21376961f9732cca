package api

import (
	"errors"
	"net/netip"
	"strings"
)

// Proxies are the addresses and networks of reverse proxies whose word about the client's address is believed.
type Proxies []string

// UnmarshalText reads addresses and networks, separated by commas.
func (p *Proxies) UnmarshalText(text []byte) error {
	*p = nil
	for part := range strings.SplitSeq(string(text), ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		_, addrErr := netip.ParseAddr(part)
		_, networkErr := netip.ParsePrefix(part)
		if addrErr != nil && networkErr != nil {
			return errors.New("must be addresses or networks such as 10.0.0.1 or 10.0.0.0/8, separated by commas")
		}
		*p = append(*p, part)
	}
	return nil
}

// MarshalText is the inverse of UnmarshalText.
func (p Proxies) MarshalText() ([]byte, error) { return []byte(strings.Join(p, ",")), nil }
