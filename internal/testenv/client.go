package testenv

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Key is the API key of all programs that tests start.
const Key = "test-secret"

// A Client is a gateway, as far as tests need one. Its requests fail no test, so that any goroutine may send them.
type Client struct {
	URL string
	// Key is sent unless it is empty.
	Key string
}

// httpClient makes a connection for each request: a test may stop and start what it talks to.
var httpClient = &http.Client{
	Transport: &http.Transport{DisableKeepAlives: true},
	Timeout:   60 * time.Second,
}

// A Reply is the JSON of any answer.
type Reply struct {
	ID               string  `json:"sandbox_id"`
	URL              *string `json:"sandbox_url"`
	Status           string  `json:"status"`
	MaxShellSessions *int    `json:"max_shell_sessions"`
	Ready            bool    `json:"ready"`
	Reason           string  `json:"reason"`
	Message          string  `json:"message"`
	Generation       uint64  `json:"generation"`

	Sandboxes []Reply `json:"sandboxes"`
	Count     int     `json:"count"`

	OK     bool    `json:"ok"`
	Exists *bool   `json:"exists"`
	UID    *string `json:"container_id"`

	Op       string `json:"op"`
	State    string `json:"state"`
	Attempts int    `json:"attempts"`

	Detail json.RawMessage `json:"detail"`
	Job    *Reply          `json:"job"`
}

// A Response is what came back.
type Response struct {
	// Code is 0 when no answer came; Err says why.
	Code   int
	Err    error
	Header http.Header
	Raw    string
	Body   Reply
	Took   time.Duration
}

func (r Response) String() string {
	if r.Err != nil {
		return fmt.Sprintf("no answer after %s: %v", r.Took, r.Err)
	}
	return fmt.Sprintf("%d after %s: %s", r.Code, r.Took, r.Raw)
}

// Detail is the text of an error.
func (r Response) Detail() string {
	var text string
	if json.Unmarshal(r.Body.Detail, &text) != nil {
		return string(r.Body.Detail)
	}
	return text
}

// Want fails the test unless the answer has that code. It returns the answer.
func (r Response) Want(t testing.TB, code int) Response {
	t.Helper()
	require.Equal(t, code, r.Code, "%v", r)
	return r
}

// A RequestOption changes a request before it is sent.
type RequestOption func(header http.Header, fields map[string]any)

// Field sets a field of the body of a create.
func Field(name string, value any) RequestOption {
	return func(_ http.Header, fields map[string]any) { fields[name] = value }
}

// Prefer sets the Prefer header.
func Prefer(value string) RequestOption {
	return func(header http.Header, _ map[string]any) { header.Set("Prefer", value) }
}

// Create asks for a sandbox.
func (c Client) Create(ctx context.Context, id string, opts ...RequestOption) Response {
	return c.Do(ctx, http.MethodPost, "/api/sandboxes", map[string]any{"sandbox_id": id}, opts...)
}

// Get reads a sandbox.
func (c Client) Get(ctx context.Context, id string) Response {
	return c.Do(ctx, http.MethodGet, "/api/sandboxes/"+url.PathEscape(id), nil)
}

// Delete removes a sandbox.
func (c Client) Delete(ctx context.Context, id string, opts ...RequestOption) Response {
	return c.Do(ctx, http.MethodDelete, "/api/sandboxes/"+url.PathEscape(id), nil, opts...)
}

// List reads all sandboxes.
func (c Client) List(ctx context.Context) Response {
	return c.Do(ctx, http.MethodGet, "/api/sandboxes", nil)
}

// Presence asks whether the Pod exists.
func (c Client) Presence(ctx context.Context, id string) Response {
	return c.Do(ctx, http.MethodGet, "/api/sandboxes/"+url.PathEscape(id)+"/presence", nil)
}

// Job asks for the newest job.
func (c Client) Job(ctx context.Context, id string) Response {
	return c.Do(ctx, http.MethodGet, "/api/sandboxes/"+url.PathEscape(id)+"/job", nil)
}

// Do sends any request. A nil body sends none.
func (c Client) Do(ctx context.Context, method, path string, body map[string]any, opts ...RequestOption) Response {
	start := time.Now()
	r, err := c.do(ctx, method, path, body, opts)
	r.Err, r.Took = err, time.Since(start)
	return r
}

func (c Client) do(ctx context.Context, method, path string, body map[string]any, opts []RequestOption) (Response, error) {
	header := http.Header{}
	if c.Key != "" {
		header.Set("X-API-Key", c.Key)
	}
	for _, opt := range opts {
		opt(header, body)
	}
	var sent io.Reader
	if body != nil {
		content, err := json.Marshal(body)
		if err != nil {
			return Response{}, err
		}
		sent = bytes.NewReader(content)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.URL+path, sent)
	if err != nil {
		return Response{}, err
	}
	req.Header = header
	resp, err := httpClient.Do(req)
	if err != nil {
		return Response{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return Response{}, err
	}
	r := Response{Code: resp.StatusCode, Header: resp.Header, Raw: string(raw)}
	if resp.Header.Get("Content-Type") == "application/json" {
		err = json.Unmarshal(raw, &r.Body)
	}
	return r, err
}
