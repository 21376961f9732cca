// Command gateway runs in a Pod and sends requests on, so that they come from inside the cluster: names are those of cluster DNS,
// addresses those of Services. As DeerFlow's gateway does, it opens a connection for each request and repeats nothing.
package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const (
	// targetHeader of a request is where to send it: scheme, host and port.
	targetHeader = "X-Target"
	// failureHeader of an answer says why there is none.
	failureHeader = "X-Failure"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			target, err := url.Parse(r.In.Header.Get(targetHeader))
			if err != nil {
				target = &url.URL{} // the transport refuses it
			}
			r.SetURL(target)
			r.Out.Header.Del(targetHeader)
		},
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext:       (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			w.Header().Set(failureHeader, err.Error())
			w.WriteHeader(http.StatusBadGateway)
		},
	}
	server := &http.Server{Addr: ":8080", Handler: forward, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ListenAndServe(); ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}
