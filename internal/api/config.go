// Package api is the REST side: routes, authentication, decoding, waiting for outcomes, and the shapes of errors.
package api

import (
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"time"
)

// Config of the HTTP side.
type Config struct {
	Addr string `env:"LISTEN_ADDR, default=0.0.0.0:8002" help:"address of the REST API"`
	// Key is compared with X-API-Key. Without it and without Keys, every request below /api/ is refused.
	Key string `env:"PROVISIONER_API_KEY" secret:"true" help:"key that clients send as X-API-Key; its name is default"`
	// Keys open the API as well, so that clients can be told apart, and an old key can stay valid while a new one spreads.
	Keys Keys `env:"PROVISIONER_API_KEYS" secret:"true" help:"more keys, as name:key separated by commas; without any key everybody is refused"`
	// RateLimit is counted by each process for itself.
	RateLimit float64 `env:"RATE_LIMIT_RPS, default=0" help:"requests per second that each key may send to one api; 0 is no limit"`
	RateBurst int     `env:"RATE_LIMIT_BURST, default=0" help:"requests that each key may send at once; 0 is a second's worth"`
	// CreateWait must stay below the client's own 30 s.
	CreateWait time.Duration `env:"CREATE_WAIT, default=10s" help:"how long a create waits for its sandbox before it answers; up to 25s"`
	// DeleteWait must stay below the client's own 15 s.
	DeleteWait time.Duration `env:"DELETE_WAIT, default=12s" help:"how long a delete waits for Kubernetes before it answers; up to 12s"`
	// ReadWait must stay below the client's own 10 s.
	ReadWait time.Duration `env:"READ_WAIT, default=7s" help:"how long a status read waits for Kubernetes; up to 7s"`
	// TrustedProxies is empty: whoever connects could name any address.
	TrustedProxies Proxies `env:"TRUSTED_PROXIES" help:"proxies whose X-Forwarded-For is believed in the audit, as addresses or networks separated by commas"`
	// ShutdownDelay lets load balancers, which learn of our end no sooner than we do, send their last requests to somebody.
	ShutdownDelay time.Duration `env:"SHUTDOWN_DELAY, default=0s" help:"how long requests are still taken after SIGTERM, while /readyz is 503; 5s behind a load balancer"`
	// ShutdownWait is how long running requests may finish after that.
	ShutdownWait time.Duration `env:"SHUTDOWN_WAIT, default=10s" help:"how long running requests may finish after SIGTERM and SHUTDOWN_DELAY"`
}

// Validate finds values with which the API could not keep its promises to clients.
func (c Config) Validate() error {
	var problems []error
	_, port, err := net.SplitHostPort(c.Addr)
	if number, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || number == 0 {
		problems = append(problems, fmt.Errorf("LISTEN_ADDR=%q: must be host:port or :port, with a port of 1 to 65535", c.Addr))
	}
	problems = append(problems, c.checkKeys())
	if !(c.RateLimit >= 0) || math.IsInf(c.RateLimit, 0) {
		problems = append(problems, fmt.Errorf("RATE_LIMIT_RPS=%v: must be 0 or more", c.RateLimit))
	}
	if c.RateBurst < 0 {
		problems = append(problems, fmt.Errorf("RATE_LIMIT_BURST=%d: must be 0 or more", c.RateBurst))
	}
	if c.CreateWait < 0 || c.CreateWait > 25*time.Second {
		problems = append(problems, fmt.Errorf("CREATE_WAIT=%s: must be 0s to 25s; clients give up after 30s", c.CreateWait))
	}
	if c.DeleteWait <= 0 || c.DeleteWait > 12*time.Second {
		problems = append(problems, fmt.Errorf("DELETE_WAIT=%s: must be above 0s, up to 12s; clients give up after 15s", c.DeleteWait))
	}
	if c.ReadWait <= 0 || c.ReadWait > 7*time.Second {
		problems = append(problems, fmt.Errorf("READ_WAIT=%s: must be above 0s, up to 7s; clients give up after 10s", c.ReadWait))
	}
	if c.ShutdownDelay < 0 {
		problems = append(problems, fmt.Errorf("SHUTDOWN_DELAY=%s: must be 0s or more", c.ShutdownDelay))
	}
	if c.ShutdownWait < 0 {
		problems = append(problems, fmt.Errorf("SHUTDOWN_WAIT=%s: must be 0s or more", c.ShutdownWait))
	}
	return errors.Join(problems...)
}
