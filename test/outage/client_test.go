package outage_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/testenv"
)

// Clients that go away while they wait leave nothing behind in the api. It counts what the whole process has, and so runs alone.
func TestClientsThatGoAwayLeaveNothingBehind(t *testing.T) {
	rate := runtime.MemProfileRate
	runtime.MemProfileRate = 1 // every allocation counts
	defer func() { runtime.MemProfileRate = rate }()
	const clients = 200
	d := testenv.Stack(t, testenv.ClusterIP())
	c := d.Client()
	c.Create(t.Context(), "first").Want(t, http.StatusOK)
	d.NATS.WaitUntilQuiet(5 * time.Second)
	d.StopWorkers()
	before, none := runtime.NumGoroutine(), followers() // what maps of waiters take when they are empty

	ctx, leave := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for _, id := range names("left", clients) {
		waiting.Go(func() {
			r := c.Create(ctx, id, testenv.Prefer("wait=25"))
			if r.Err == nil {
				t.Errorf("an answer came to somebody who had left: %v", r)
			}
		})
	}
	testenv.Until(t, 20*time.Second, func() error {
		if n := followers(); n < clients {
			return fmt.Errorf("%d of %d wait", n, clients)
		}
		return nil
	})
	require.Greater(t, runtime.NumGoroutine(), before+clients)
	leave()
	waiting.Wait()

	testenv.Until(t, 5*time.Second, func() error {
		goroutines := runtime.NumGoroutine() - before
		if n := followers() - none; n > 10 || goroutines > 10 {
			return fmt.Errorf("%d followers and %d goroutines are left", n, goroutines)
		}
		return nil
	})
	d.StartWorkers() // what was asked for is carried out all the same
	requireExactly(t, d, 30*time.Second, append(names("left", clients), "first")...)
}

// followers is how many waiters the memory of this process holds.
func followers() int64 {
	runtime.GC()
	runtime.GC() // the profile is that of the last but one
	records := make([]runtime.MemProfileRecord, 10_000)
	n, ok := runtime.MemProfile(records, false)
	for !ok {
		records = make([]runtime.MemProfileRecord, n+1000)
		n, ok = runtime.MemProfile(records, false)
	}
	var held int64
	for _, r := range records[:n] {
		frames := runtime.CallersFrames(r.Stack())
		for frame, more := frames.Next(); ; frame, more = frames.Next() {
			if strings.HasSuffix(frame.Function, "jobs.(*Queue).Follow") {
				held = max(held, r.InUseObjects()) // of several allocations a waiter
			}
			if !more {
				break
			}
		}
	}
	return held
}
