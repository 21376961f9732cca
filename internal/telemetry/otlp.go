package telemetry

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Why not OpenTelemetry's own client: the one for HTTP links gRPC as well, which keeps the linker from leaving out unused methods.
// The program would be half as large again.

// A collector is a client of OTLP over HTTP (https://opentelemetry.io/docs/specs/otlp/#otlphttp).
type collector struct {
	url     string
	headers http.Header
	timeout time.Duration
	client  *http.Client
}

func newCollector(c TraceConfig) (*collector, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if c.Certificate != "" {
		content, err := os.ReadFile(c.Certificate)
		if err != nil {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %w", err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(content) {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE=%s: holds no certificate", c.Certificate)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	headers, err := parseHeaders(c.Headers)
	if err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_HEADERS: %w", err)
	}
	headers.Set("Content-Type", "application/x-protobuf")
	return &collector{
		url: c.url(), headers: headers, timeout: time.Duration(c.Timeout) * time.Millisecond,
		client: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// url is where spans are sent.
func (c TraceConfig) url() string {
	switch {
	case c.TracesEndpoint != "":
		return c.TracesEndpoint
	case c.Endpoint != "":
		return strings.TrimSuffix(c.Endpoint, "/") + "/v1/traces"
	}
	return "http://localhost:4318/v1/traces"
}

// parseHeaders reads "name=value,name=value", with values escaped as in URLs.
func parseHeaders(text string) (http.Header, error) {
	headers := http.Header{}
	for part := range strings.SplitSeq(text, ",") {
		name, value, found := strings.Cut(part, "=")
		name = strings.TrimSpace(name)
		if strings.TrimSpace(part) == "" {
			continue
		}
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !found || name == "" || err != nil {
			return nil, errors.New("must be name=value, or several separated by commas")
		}
		headers.Set(name, value)
	}
	return headers, nil
}

// Start implements otlptrace.Client.
func (c *collector) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (c *collector) Stop(context.Context) error {
	c.client.CloseIdleConnections()
	return nil
}

// UploadTraces implements otlptrace.Client. It tries again what may pass, as long as the timeout lasts.
func (c *collector) UploadTraces(ctx context.Context, spans []*otlp.ResourceSpans) error {
	body, err := proto.Marshal(&otlp.TracesData{ResourceSpans: spans}) // the same on the wire as the request's own type
	if err != nil {
		return fmt.Errorf("encode spans: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	policy := backoff.NewExponentialBackOff(backoff.WithInitialInterval(500*time.Millisecond), backoff.WithMaxElapsedTime(c.timeout))
	var last error // of which the end of the timeout says nothing
	err = backoff.Retry(func() error {
		last = c.upload(ctx, body)
		return last
	}, backoff.WithContext(policy, ctx))
	if err != nil && last != nil {
		return last
	}
	return err
}

func (c *collector) upload(ctx context.Context, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return backoff.Permanent(err)
	}
	req.Header = c.headers.Clone()
	resp, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	switch resp.StatusCode {
	case http.StatusOK, http.StatusAccepted:
		return nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return fmt.Errorf("the collector answers %s", resp.Status)
	}
	return backoff.Permanent(fmt.Errorf("the collector answers %s", resp.Status))
}
