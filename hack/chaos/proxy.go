package main

import (
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync/atomic"

	"k8s.io/client-go/rest"
)

// A proxy stands in front of the API server, lends everybody the admin's credentials, and misbehaves when told to.
type proxy struct {
	url    string
	server *http.Server
	mode   atomic.Int64
}

// Modes: a number from 1 to 100 is the percentage of requests that go wrong.
const (
	faultless = 0
	cut       = 101
)

func faulty(percent int) int64 { return int64(percent) }

func newProxy(cfg *rest.Config) (*proxy, error) {
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
	p := &proxy{url: "http://" + listener.Addr().String()}
	forward := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
			panic(http.ErrAbortHandler) // as if the connection had broken
		},
	}
	p.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.serve(w, r, forward) })}
	go func() { _ = p.server.Serve(listener) }()
	return p, nil
}

func (p *proxy) set(mode int64) { p.mode.Store(mode) }

func (p *proxy) close() { _ = p.server.Close() }

func (p *proxy) serve(w http.ResponseWriter, r *http.Request, forward http.Handler) {
	mode := p.mode.Load()
	switch {
	case mode == cut:
		panic(http.ErrAbortHandler)
	case mode == faultless || rand.Int64N(100) >= mode:
		forward.ServeHTTP(w, r)
		return
	}
	switch rand.IntN(4) {
	case 0:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
	case 1:
		http.Error(w, "etcdserver: leader changed", http.StatusInternalServerError)
	case 2:
		panic(http.ErrAbortHandler) // it never arrives
	default:
		forward.ServeHTTP(&deaf{header: http.Header{}}, r)
		panic(http.ErrAbortHandler) // it arrives, and the answer is lost
	}
}

// deaf takes an answer and keeps it to itself.
type deaf struct{ header http.Header }

func (d *deaf) Header() http.Header         { return d.header }
func (d *deaf) Write(b []byte) (int, error) { return len(b), nil }
func (d *deaf) WriteHeader(int)             {}
