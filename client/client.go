// Package client talks to a sandbox provisioner.
//
// All methods block until there is an answer or ctx ends, are safe for concurrent use, and repeat what failed on the way where
// that can help: creates and deletes are idempotent by sandbox id, so that repeating one is always safe. See [WithTries].
//
// What the provisioner refuses is an [*Error]; errors.Is with [ErrNotFound], [ErrCapacity] and the like tells the cases apart.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	defaultTries = 5
	// defaultAttemptTimeout is above the 27 s within which the provisioner answers everything.
	defaultAttemptTimeout = 30 * time.Second
	defaultPollInterval   = 500 * time.Millisecond
	defaultPageSize       = 500
)

// A Client calls one provisioner. Make it with New.
type Client struct {
	baseURL, apiKey string
	http            *http.Client
	tries           int
	attemptTimeout  time.Duration
	pollInterval    time.Duration
	pageSize        int
}

// An Option changes a new Client.
type Option func(*Client)

// New returns a Client of the provisioner at baseURL, such as "http://provisioner:8002". A baseURL that is none shows in the
// error of the first call.
func New(baseURL, apiKey string, opts ...Option) *Client {
	c := &Client{
		baseURL: strings.TrimRight(baseURL, "/"), apiKey: apiKey, http: &http.Client{},
		tries: defaultTries, attemptTimeout: defaultAttemptTimeout, pollInterval: defaultPollInterval, pageSize: defaultPageSize,
	}
	for _, opt := range opts {
		opt(c)
	}
	if c.http.CheckRedirect == nil {
		// The provisioner never redirects, and whoever does must not get the key.
		own := *c.http
		own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		c.http = &own
	}
	return c
}

// WithHTTPClient sends requests through h, in place of one with default settings. Redirects are followed only if h has its own
// CheckRedirect.
func WithHTTPClient(h *http.Client) Option { return func(c *Client) { c.http = h } }

// WithTries sets how often a request is sent at most, 5 unless set; 1 never repeats.
//
// Repeated is what got no answer (connection refused or cut, no answer within the attempt's timeout) and what was answered
// with 502, 503 or 504, or with 429 by a proxy. The pause doubles from 200 ms up to 5 s, with jitter, and is never shorter than
// Retry-After asks for. Not repeated is what the provisioner refuses without Retry-After, a quota refusal, which is final
// until somebody deletes a sandbox, and anything whose pause would outlast ctx or one minute.
func WithTries(n int) Option { return func(c *Client) { c.tries = max(n, 1) } }

// WithAttemptTimeout bounds each attempt, 30 s unless set. ctx bounds all of them together.
func WithAttemptTimeout(d time.Duration) Option { return func(c *Client) { c.attemptTimeout = d } }

// WithPollInterval sets how often WaitReady and WaitGone look, every 500 ms unless set.
func WithPollInterval(d time.Duration) Option { return func(c *Client) { c.pollInterval = d } }

// WithPageSize sets how many sandboxes List asks for at a time, 500 unless set.
func WithPageSize(n int) Option { return func(c *Client) { c.pageSize = max(n, 1) } }

// A CallOption changes one Create or Delete.
type CallOption func(*preference)

// A preference becomes the header Prefer.
type preference []string

// RespondAsync asks for an answer as soon as the request is safe in the queue, before it is carried out.
func RespondAsync() CallOption {
	return func(p *preference) { *p = append(*p, "respond-async") }
}

// Wait asks the provisioner to wait up to d for the request to be carried out, in place of its own 10 s for a create and 12 s
// for a delete. It is sent in whole seconds, rounded up; the provisioner waits for at most 25 s and 12 s.
func Wait(d time.Duration) CallOption {
	return func(p *preference) {
		seconds := (max(d, 0) + time.Second - 1) / time.Second
		*p = append(*p, fmt.Sprintf("wait=%d", seconds))
	}
}

// Health returns nil if the provisioner serves. It tries once.
func (c *Client) Health(ctx context.Context) error { return c.probe(ctx, "/health") }

// Ready returns nil if the provisioner serves and reaches its queue and its cluster; otherwise an [ErrUnavailable] that names
// the part that is down. It tries once.
func (c *Client) Ready(ctx context.Context) error { return c.probe(ctx, "/readyz") }

func (c *Client) probe(ctx context.Context, path string) error {
	_, err := c.attempt(ctx, request{method: http.MethodGet, path: path}, nil)
	return err
}

// Capabilities tells what this provisioner is set up for.
func (c *Client) Capabilities(ctx context.Context) (*Capabilities, error) {
	var caps Capabilities
	_, err := c.do(ctx, request{method: http.MethodGet, path: "/api/capabilities"}, &caps)
	return orNil(&caps, err)
}

// A request can be sent more than once.
type request struct {
	method, path string
	body         []byte
	prefer       preference
}

func newRequest(method, path string, opts ...CallOption) request {
	r := request{method: method, path: path}
	for _, opt := range opts {
		opt(&r.prefer)
	}
	return r
}

// sandboxPath keeps an id that is none in one piece, so that it cannot lead elsewhere.
func sandboxPath(id, below string) string { return "/api/sandboxes/" + url.PathEscape(id) + below }

// attempt sends r once and decodes the answer into into, unless that is nil. It returns the status of an answer that is no error.
func (c *Client) attempt(ctx context.Context, r request, into any) (status int, err error) {
	attemptCtx, cancel := context.WithTimeout(ctx, c.attemptTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(attemptCtx, r.method, c.baseURL+r.path, bytes.NewReader(r.body))
	if err != nil {
		return 0, fmt.Errorf("provisioner: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	if strings.HasPrefix(r.path, "/api/") {
		req.Header.Set("X-API-Key", c.apiKey)
	}
	if len(r.body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	if len(r.prefer) > 0 {
		req.Header.Set("Prefer", strings.Join(r.prefer, ", "))
	}
	res, err := c.http.Do(req)
	if err != nil {
		return 0, unanswered(ctx, err)
	}
	defer res.Body.Close() //nolint:errcheck // it has been read
	body, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return 0, unanswered(ctx, err)
	case res.StatusCode < 200 || res.StatusCode > 299:
		return 0, newError(res, body)
	case into == nil:
		return res.StatusCode, nil
	}
	if err := json.Unmarshal(body, into); err != nil {
		return 0, fmt.Errorf("provisioner: %s %s: answer is not what was expected: %w", r.method, r.path, err)
	}
	return res.StatusCode, nil
}

// unanswered wraps the error of an attempt to which there was no answer. The caller's own end is not the provisioner's fault.
func unanswered(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("provisioner: %w", errors.Join(ctx.Err(), err))
	}
	return fmt.Errorf("provisioner: %w: %w", ErrUnavailable, err)
}

func orNil[T any](v *T, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}
