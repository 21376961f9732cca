package main

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// A pass is one load from its first request to its last answer.
type pass struct {
	took      time.Duration
	latencies []time.Duration
}

func (p pass) perSecond() float64 { return float64(len(p.latencies)) / p.took.Seconds() }

// closedLoop has op carried out n times by a number of clients, each of which waits for its answer before it asks again. The
// first error ends it.
func closedLoop(ctx context.Context, clients, n int, op func(ctx context.Context, i int) error) (pass, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p := pass{latencies: make([]time.Duration, n)}
	var next atomic.Int64
	var running sync.WaitGroup
	start := time.Now()
	for range clients {
		running.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				asked := time.Now()
				if err := op(ctx, i); err != nil {
					cancel(err)
				}
				p.latencies[i] = time.Since(asked)
			}
		})
	}
	running.Wait()
	p.took = time.Since(start)
	return p, context.Cause(ctx)
}

// openLoop has op carried out at a fixed rate, however long the answers take. Latencies count from the moment at which the
// request was to be sent, so that waiting for a turn is not hidden. The first error ends it.
func openLoop(ctx context.Context, perSecond int, d time.Duration, op func(ctx context.Context, i int) error) (pass, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Vegeta paces. What is hit is up to the transport, since not every contestant speaks HTTP.
	attacker := vegeta.NewAttacker(vegeta.Client(&http.Client{Transport: transport(func(i int) error {
		err := op(ctx, i)
		if err != nil {
			cancel(err)
		}
		return err
	})}))
	defer context.AfterFunc(ctx, func() { attacker.Stop() })()
	target := vegeta.NewStaticTargeter(vegeta.Target{Method: http.MethodPost, URL: "http://contestant"})
	start := time.Now()
	var hits []hit
	for r := range attacker.Attack(target, vegeta.ConstantPacer{Freq: perSecond, Per: time.Second}, d, "") {
		hits = append(hits, hit{seq: int(r.Seq), sent: r.Timestamp, took: r.Latency})
	}
	p := pass{took: time.Since(start), latencies: fromIntended(hits, time.Second/time.Duration(perSecond))}
	return p, context.Cause(ctx)
}

// transport carries out an operation in place of a request, which says the how manyth it is.
type transport func(i int) error

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	i, err := strconv.Atoi(req.Header.Get("X-Vegeta-Seq"))
	if err == nil {
		err = t(i)
	}
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Request: req, Body: http.NoBody}, nil
}

// A hit is one request of an open loop: number seq was sent at that time, perhaps later than it should have been.
type hit struct {
	seq  int
	sent time.Time
	took time.Duration
}

// fromIntended counts latencies from when each hit was to be sent. The one that was sent with the least delay tells when that
// was for all of them.
func fromIntended(hits []hit, period time.Duration) []time.Duration {
	var begin time.Time
	for _, h := range hits {
		if b := h.sent.Add(-time.Duration(h.seq) * period); begin.IsZero() || b.Before(begin) {
			begin = b
		}
	}
	latencies := make([]time.Duration, 0, len(hits))
	for _, h := range hits {
		latencies = append(latencies, h.sent.Add(h.took).Sub(begin.Add(time.Duration(h.seq)*period)))
	}
	return latencies
}
