package faults_test

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/testenv"
)

// Workers are replaced one after the other, as a rolling update does, for as long as 1,000 creates take.
func TestARollingRestartOfWorkersIsNotNoticed(t *testing.T) {
	t.Parallel()
	const creates, clients = 1000, 16
	d := testenv.Processes(t, testenv.ClusterIP(), testenv.Workers(3))
	c := d.Client()
	var next, replaced atomic.Int64
	var slowest atomic.Int64
	refused := make(chan string, creates)
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for n := next.Add(1); n <= creates; n = next.Add(1) {
				start := time.Now()
				// A worker that was lost in silence would show as a 202 when the wait of 10 s is over.
				if r := c.Create(t.Context(), fmt.Sprintf("rolling-%d", n)); r.Code != http.StatusOK {
					refused <- r.String()
				}
				took := int64(time.Since(start))
				for old := slowest.Load(); took > old && !slowest.CompareAndSwap(old, took); old = slowest.Load() {
				}
			}
		})
	}
	var restarts sync.WaitGroup
	restarts.Go(func() {
		for i := 0; next.Load() < creates; i++ {
			d.Workers[i%3].Stop()
			d.Workers[i%3].Start()
			replaced.Add(1)
		}
	})
	all.Wait()
	restarts.Wait()
	t.Logf("%d workers were replaced, the slowest create took %s", replaced.Load(), time.Duration(slowest.Load()))
	require.GreaterOrEqual(t, replaced.Load(), int64(3), "every worker was replaced")
	close(refused)
	for r := range refused {
		require.Fail(t, "a client noticed", r)
	}
	pods, services := living(d)
	require.Len(t, pods, creates)
	require.Len(t, services, creates)
}
