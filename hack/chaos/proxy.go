package main

import (
	"bytes"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// A proxy stands in front of the API server, lends everybody the admin's credentials, and misbehaves when told to.
type proxy struct {
	url     string
	server  *http.Server
	forward http.Handler

	mu      sync.Mutex
	r       *rand.Rand
	weather weather
}

// A weather is what happens to requests: the percentage of them that suffer each fault.
type weather struct {
	// cut lets nothing through.
	cut bool
	// throttled answers 429, broken 500; dropped requests never arrive, the answers of deaf ones are lost; slow ones are late.
	throttled, broken, dropped, deaf, slow int
}

// longestHold is the most that a slow request is held up. It is less than what is left of ACK_WAIT when a lease ends: Kubernetes
// carrying out a write after another worker has been given the job is not among the faults that are covered.
const longestHold = 600 * time.Millisecond

func newProxy(cfg *rest.Config, r *rand.Rand) (*proxy, error) {
	target, err := url.Parse(cfg.Host)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{url: "http://" + listener.Addr().String(), r: r}
	p.forward = &httputil.ReverseProxy{
		Transport:    transport,
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorLog:     log.New(io.Discard, "", 0),
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }, // as if the connection had broken
	}
	p.server = &http.Server{Handler: p, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute}
	go func() { _ = p.server.Serve(listener) }()
	return p, nil
}

func (p *proxy) set(w weather) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.weather = w
}

func (p *proxy) close() { _ = p.server.Close() }

// draw is the weather, and how the dice have fallen for one request.
func (p *proxy) draw() (w weather, percent int, hold time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.weather, p.r.IntN(100), time.Duration(p.r.Int64N(int64(longestHold)))
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// A body that has been read lets the server notice when the client goes away.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))

	now, percent, hold := p.draw()
	below := 0
	hit := func(share int) bool {
		below += share
		return percent < below
	}
	switch {
	case now.cut || hit(now.dropped):
		panic(http.ErrAbortHandler)
	case hit(now.throttled):
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many requests", http.StatusTooManyRequests)
	case hit(now.broken):
		http.Error(w, "etcdserver: leader changed", http.StatusInternalServerError)
	case hit(now.deaf):
		p.forward.ServeHTTP(&void{header: http.Header{}}, r)
		panic(http.ErrAbortHandler)
	case hit(now.slow):
		pause(r.Context(), hold)
		if r.Context().Err() != nil {
			panic(http.ErrAbortHandler)
		}
		p.forward.ServeHTTP(w, r)
	default:
		p.forward.ServeHTTP(w, r)
	}
}

// A void takes an answer and keeps it to itself.
type void struct{ header http.Header }

func (v *void) Header() http.Header         { return v.header }
func (v *void) Write(b []byte) (int, error) { return len(b), nil }
func (v *void) WriteHeader(int)             {}
