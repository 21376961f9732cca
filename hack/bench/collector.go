package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

// collectorAddr makes the program a collector of traces there, in a process of its own: the client's processor time is what both
// contestants are measured with.
const collectorAddr = "BENCH_COLLECTOR_ADDR"

// serveCollector takes whatever is posted, and tells everybody else how many bytes that were.
func serveCollector(ctx context.Context) error {
	var taken atomic.Int64
	server := &http.Server{
		Addr: os.Getenv(collectorAddr), ReadHeaderTimeout: time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost {
				_, _ = fmt.Fprint(w, taken.Load())
				return
			}
			n, _ := io.Copy(io.Discard, r.Body) // what is cut off counts as far as it came
			taken.Add(n)
		}),
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
