package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/jobs"
	"sandbox-provisioner/internal/natsserver"
	"sandbox-provisioner/internal/sandbox"
)

// soon is how long a test waits for what must happen.
const soon = 10 * time.Second

// A desk is a real queue with its server.
type desk struct {
	t      *testing.T
	server *natsserver.Server
	nc     *nats.Conn
	cfg    jobs.Config
	*jobs.Queue
}

func newDesk(t *testing.T, ackWait time.Duration) *desk {
	t.Helper()
	s, err := natsserver.Start(natsserver.Config{DataDir: t.TempDir()}, quiet())
	require.NoError(t, err)
	t.Cleanup(s.Shutdown)
	nc, err := s.Connect(jobs.ConnectOptions("test", quiet())...)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	cfg := jobs.Config{
		Cluster: "test", Replicas: 1, Retention: time.Hour, AckWait: ackWait, Deadline: 15 * time.Minute, Timeout: 1500 * time.Millisecond,
	}
	q, err := jobs.New(nc, cfg, quiet())
	require.NoError(t, err)
	return &desk{t, s, nc, cfg, q}
}

// create asks for each id.
func (d *desk) create(ids ...string) {
	d.t.Helper()
	for _, id := range ids {
		v, err := d.Look(d.t.Context(), id)
		require.NoError(d.t, err)
		_, err = d.Publish(d.t.Context(), v, v.Create(sandbox.Spec{ThreadID: id}, "r-"+id, time.Now(), d.cfg.Deadline))
		require.NoError(d.t, err)
	}
}

// take is the next delivery.
func (d *desk) take() *jobs.Delivery {
	d.t.Helper()
	c := d.Consumer()
	for over := time.Now().Add(soon); time.Now().Before(over); {
		deliveries, err := c.Fetch(d.t.Context(), 1)
		require.NoError(d.t, err)
		for delivery := range deliveries {
			return delivery
		}
	}
	require.FailNow(d.t, "no delivery came")
	return nil
}

// pending is how many deliveries have no answer yet.
func (d *desk) pending() int {
	d.t.Helper()
	js, err := jetstream.New(d.nc)
	require.NoError(d.t, err)
	c, err := js.Consumer(d.t.Context(), "SANDBOX_JOBS", "test")
	require.NoError(d.t, err)
	return c.CachedInfo().NumAckPending
}

func (d *desk) requireSucceeded(ids ...string) {
	d.t.Helper()
	for _, id := range ids {
		require.Eventually(d.t, func() bool {
			v, err := d.Look(d.t.Context(), id)
			return err == nil && v.Living()
		}, soon, 5*time.Millisecond, "%s was not carried out", id)
	}
}

// idle is a Worker that is asked to settle or lease only.
func (d *desk) idle() *Worker {
	return New(nil, nil, nil, d.cfg.AckWait, Config{Concurrency: 1, RetryMax: 30 * time.Second}, NewMetrics(nil), quiet())
}

func TestAJobThatIsDoneIsAcknowledged(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 15*time.Second)
	d.create("a1")
	delivery := d.take()
	require.Equal(t, 1, d.pending())
	d.idle().settle(delivery, nil, nil)
	require.Eventually(t, func() bool { return d.pending() == 0 }, soon, time.Millisecond)
}

func TestAJobThatFailedForGoodIsTerminatedWithItsReason(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 15*time.Second)
	d.create("a1")
	advisories, err := d.nc.SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>")
	require.NoError(t, err)
	d.idle().settle(d.take(), failure(sandbox.ReasonMalformed), nil)
	msg, err := advisories.NextMsg(soon)
	require.NoError(t, err)
	require.Contains(t, string(msg.Data), "MalformedIntent")
	require.Zero(t, d.pending())
}

func TestAJobThatIsToBeTriedAgainComesBackAfterItsDelay(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err      error
		cause    error
		min, max time.Duration
	}{
		"after the backoff":            {retry(sandbox.ReasonServer, 0), nil, 80 * time.Millisecond, 900 * time.Millisecond},
		"when the server says":         {retry(sandbox.ReasonThrottled, time.Second), nil, time.Second, 3 * time.Second},
		"not sooner than the backoff":  {retry(sandbox.ReasonTerminating, time.Millisecond), nil, 80 * time.Millisecond, 900 * time.Millisecond},
		"after trouble with NATS":      {jobs.ErrUnavailable, nil, 80 * time.Millisecond, 900 * time.Millisecond},
		"at once when we go away":      {context.Canceled, errDrained, 0, 900 * time.Millisecond},
		"at once when a retry is late": {retry(sandbox.ReasonUnavailable, time.Hour), errDrained, 0, 900 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, 15*time.Second)
			d.create("a1")
			delivery := d.take()
			handedBack := time.Now()
			d.idle().settle(delivery, test.err, test.cause)
			again := d.take()
			require.Equal(t, 2, again.Attempt)
			require.GreaterOrEqual(t, time.Since(handedBack), test.min)
			require.Less(t, time.Since(handedBack), test.max)
		})
	}
}

// An answer would take the job from whoever has it by now, or end it before he has looked after what we have written late.
func TestNoAnswerIsGivenForAJobThatMayBeSomebodyElses(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"in vain": retry(sandbox.ReasonServer, 0), "for good": failure(sandbox.ReasonMalformed), "well": nil,
	} {
		t.Run("although it ended "+name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, 2*time.Second)
			d.create("a1")
			d.idle().settle(d.take(), err, errLeaseLost)
			require.NoError(t, d.nc.Flush())
			require.Equal(t, 1, d.pending())
			taken := time.Now()
			require.Equal(t, 2, d.take().Attempt)
			require.Greater(t, time.Since(taken), time.Second, "it comes back when AckWait is over, and not sooner")
		})
	}
}

func TestAnUnavailableClusterShutsTheGate(t *testing.T) {
	t.Parallel()
	for reason, want := range map[sandbox.Reason]bool{
		sandbox.ReasonUnavailable: true, sandbox.ReasonServer: false, sandbox.ReasonTerminating: false,
	} {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, 15*time.Second)
			d.create("a1")
			w := d.idle()
			w.settle(d.take(), retry(reason, 0), nil)
			require.Equal(t, want, w.gate.closed)
		})
	}
}

func TestALeaseEndsBeforeAckWaitWhenHeartbeatsFail(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 3*time.Second)
	d.create("a1")
	asked := time.Now()
	delivery := d.take()
	ctx, release := d.idle().lease(t.Context(), delivery)
	defer release()
	d.server.Shutdown()
	select {
	case <-ctx.Done():
	case <-time.After(soon):
		require.FailNow(t, "a worker that is cut off would write for ever")
	}
	require.ErrorIs(t, context.Cause(ctx), errLeaseLost)
	require.Less(t, time.Since(asked), 3*time.Second, "before NATS may hand the job to somebody else")
	require.Greater(t, time.Since(asked), time.Second)
}

func TestConfirmedHeartbeatsExtendALease(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 3*time.Second)
	d.create("a1")
	delivery := d.take()
	ctx, release := d.idle().lease(t.Context(), delivery)
	defer release()
	others, err := d.Consumer().Fetch(t.Context(), 1)
	require.NoError(t, err)
	select {
	case <-ctx.Done():
		require.FailNow(t, "the lease ended", "%v", context.Cause(ctx))
	case <-time.After(time.Until(delivery.Until) + 2*time.Second): // beyond AckWait
	}
	require.Nil(t, <-others, "nobody else got it")
	require.Equal(t, 1, d.pending())
}

func TestAReleasedLeaseSendsNoMoreHeartbeats(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 3*time.Second)
	d.create("a1")
	ctx, release := d.idle().lease(t.Context(), d.take())
	release()
	require.ErrorIs(t, context.Cause(ctx), context.Canceled)
	require.Equal(t, 2, d.take().Attempt, "the job goes to somebody else")
}

// A source counts the requests that it has sent.
type source struct {
	Source
	requests atomic.Int64
}

func (s *source) Fetch(ctx context.Context, n int) (<-chan *jobs.Delivery, error) {
	defer s.requests.Add(1)
	return s.Source.Fetch(ctx, n)
}

// A cluster is one in which every creation does as its id is told, and succeeds at once when it is told nothing.
type cluster struct {
	ensure func(ctx context.Context, id string) error

	mu       sync.Mutex
	tries    map[string]int
	now, top int
}

func (c *cluster) Ensure(ctx context.Context, id string, _ sandbox.Spec, _ sandbox.Lineage) (sandbox.State, error) {
	c.mu.Lock()
	if c.tries == nil {
		c.tries = map[string]int{}
	}
	c.tries[id]++
	c.now++
	c.top = max(c.top, c.now)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.now--
	}()
	if err := c.ensure(ctx, id); err != nil {
		return sandbox.State{}, err
	}
	return sandbox.State{ID: id, Status: sandbox.Running, PodUID: "pod-" + id}, nil
}

func (c *cluster) Remove(context.Context, string, sandbox.Lineage) error { return nil }
func (c *cluster) Undo(context.Context, string, sandbox.Lineage) error   { return nil }

// all is the number of tries of all ids.
func (c *cluster) all() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, tries := range c.tries {
		n += tries
	}
	return n
}

// work starts a worker; stop ends its context and returns when it has drained.
func (d *desk) work(c Cluster, cfg Config, ping func(context.Context) error) (s *source, cancel func(), stopped <-chan struct{}) {
	d.t.Helper()
	s = &source{Source: d.Consumer()}
	w := New(s, NewReconciler(d.Queue, c, NewMetrics(nil), nil), ping, d.cfg.AckWait, cfg, NewMetrics(nil), quiet())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	d.t.Cleanup(func() {
		cancel()
		<-done
	})
	return s, cancel, done
}

func reachable(context.Context) error { return nil }

func usual(concurrency int) Config {
	return Config{Concurrency: concurrency, DrainWait: 8 * time.Second, RetryMax: 30 * time.Second}
}

func TestAWorkerCarriesOutJobsAsTheyCome(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 15*time.Second)
	d.create("a1", "b2")
	d.work(&cluster{ensure: func(context.Context, string) error { return nil }}, usual(4), reachable)
	d.requireSucceeded("a1", "b2")
	d.create("c3")
	d.requireSucceeded("c3")
	require.Eventually(t, func() bool { return d.pending() == 0 }, soon, time.Millisecond)
}

func TestOnlySoManyJobsRunAtOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 15*time.Second)
	ids := []string{"a1", "b2", "c3", "d4", "e5", "f6", "g7"}
	d.create(ids...)
	arrived := make(chan struct{}, len(ids))
	proceed := make(chan struct{})
	c := &cluster{ensure: func(context.Context, string) error {
		arrived <- struct{}{}
		<-proceed
		return nil
	}}
	d.work(c, usual(3), reachable)
	for range 3 {
		<-arrived // three are there at once
	}
	close(proceed)
	d.requireSucceeded(ids...)
	require.Equal(t, 3, c.top)
}

// An id that hangs in its termination holds no slot while it waits.
func TestAnIDThatWaitsDelaysNobody(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 15*time.Second)
	d.create("hangs", "a1", "b2", "c3")
	c := &cluster{ensure: func(_ context.Context, id string) error {
		if id == "hangs" {
			return retry(sandbox.ReasonTerminating, 100*time.Millisecond)
		}
		return nil
	}}
	d.work(c, usual(1), reachable)
	d.requireSucceeded("a1", "b2", "c3")
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.tries["hangs"] >= 3
	}, soon, time.Millisecond, "it is tried again and again")
}

func TestADrainLetsRunningJobsFinishAndHandsBackTheRest(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 15*time.Second)
	d.create("quick", "endless")
	arrived := make(chan string, 2)
	finish := make(chan struct{})
	first := &cluster{ensure: func(ctx context.Context, id string) error {
		arrived <- id
		if id == "quick" {
			<-finish
			return ctx.Err()
		}
		<-ctx.Done()
		return retry(sandbox.ReasonUnavailable, 0)
	}}
	cfg := usual(2)
	cfg.DrainWait = 500 * time.Millisecond
	s, cancel, stopped := d.work(first, cfg, reachable)
	<-arrived
	<-arrived

	requests := s.requests.Load()
	ended := time.Now()
	cancel()
	close(finish)
	d.requireSucceeded("quick")
	require.Less(t, time.Since(ended), cfg.DrainWait, "a job that is to finish is not cut off")
	<-stopped
	require.GreaterOrEqual(t, time.Since(ended), cfg.DrainWait)
	require.Less(t, time.Since(ended), cfg.DrainWait+4*time.Second)
	require.Equal(t, requests, s.requests.Load(), "nothing was fetched after the end")

	d.create("later")
	takenUp := time.Now()
	d.work(&cluster{ensure: func(context.Context, string) error { return nil }}, usual(2), reachable)
	d.requireSucceeded("endless", "later")
	require.Less(t, time.Since(takenUp), 3*time.Second, "long before AckWait is over")
}

// A request that is open when the drain begins stays open: what it brings is somebody else's to do.
func TestAJobThatComesDuringADrainIsLeftToOthers(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 15*time.Second)
	leaving := &cluster{ensure: func(context.Context, string) error { return nil }}
	s, cancel, stopped := d.work(leaving, usual(2), reachable)
	require.Eventually(t, func() bool { return s.requests.Load() > 0 }, soon, time.Millisecond)
	cancel()
	d.create("a1")
	asked := time.Now()
	staying := &cluster{ensure: func(context.Context, string) error { return nil }}
	d.work(staying, usual(2), reachable)
	d.requireSucceeded("a1")
	require.Less(t, time.Since(asked), 5*time.Second, "long before AckWait is over")
	<-stopped
	require.Zero(t, leaving.all())
	require.Equal(t, 1, staying.all())
}

func TestAWorkerWithoutJobsStopsWithinAFetch(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 15*time.Second)
	s, cancel, stopped := d.work(&cluster{}, usual(2), reachable)
	require.Eventually(t, func() bool { return s.requests.Load() > 0 }, soon, time.Millisecond)
	cancel()
	select {
	case <-stopped:
	case <-time.After(4 * time.Second):
		require.FailNow(t, "the worker does not stop")
	}
}

// In place of trying every queued job in turn, a worker waits for the cluster.
func TestWhileTheClusterIsUnavailableJobsWait(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 15*time.Second)
	var ids []string
	for i := range 30 {
		ids = append(ids, fmt.Sprint("id-", i))
	}
	d.create(ids...)
	up := make(chan struct{})
	c := &cluster{ensure: func(context.Context, string) error {
		select {
		case <-up:
			return nil
		default:
			return retry(sandbox.ReasonUnavailable, 0)
		}
	}}
	pings := make(chan struct{})
	d.work(c, usual(2), func(context.Context) error {
		select {
		case <-up:
			return nil
		case pings <- struct{}{}:
			return errors.New("connection refused")
		}
	})
	<-pings // the gate is shut; one more job may have been fetched before
	<-pings
	tries := c.all()
	require.LessOrEqual(t, tries, 4*3, "each of two or four jobs was tried three times in place")
	for range 3 {
		<-pings
		require.Equal(t, tries, c.all(), "and nothing is tried until the cluster answers")
	}
	close(up)
	d.requireSucceeded(ids...)
}

func TestAWorkerWaitsForItsSource(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &source{Source: brokenSource{}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		New(s, nil, reachable, 15*time.Second, usual(3), NewMetrics(nil), quiet()).Run(ctx)
		require.Equal(t, time.Minute, time.Since(start), "it does not give up before its end, nor go on after it")
		require.InDelta(t, 60, s.requests.Load(), 1)
	})
}

type brokenSource struct{}

func (brokenSource) Fetch(context.Context, int) (<-chan *jobs.Delivery, error) {
	return nil, jobs.ErrUnavailable
}

func TestConfigsThatCannotWorkAreRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"stock":               {func(*Config) {}, ""},
		"no drain":            {func(c *Config) { c.DrainWait = 0 }, ""},
		"no concurrency":      {func(c *Config) { c.Concurrency = 0 }, "WORKER_CONCURRENCY=0"},
		"too much of it":      {func(c *Config) { c.Concurrency = 1001 }, "WORKER_CONCURRENCY=1001"},
		"a drain before now":  {func(c *Config) { c.DrainWait = -1 }, "DRAIN_WAIT"},
		"a drain beyond kill": {func(c *Config) { c.DrainWait = 10 * time.Second }, "DRAIN_WAIT=10s"},
		"no delay":            {func(c *Config) { c.RetryMax = 0 }, "RETRY_MAX=0s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := usual(64)
			test.change(&c)
			if test.want == "" {
				require.NoError(t, c.Validate())
			} else {
				require.ErrorContains(t, c.Validate(), test.want)
			}
		})
	}
}

// A worker that was frozen with a message in its hands finds it there when it comes back.
func TestAJobWhoseLeaseIsOverIsNotBegun(t *testing.T) {
	t.Parallel()
	w := &Worker{heartbeat: time.Hour}
	ctx, release := w.lease(t.Context(), &jobs.Delivery{ID: "a1", Until: time.Now().Add(-time.Second)})
	defer release()
	require.ErrorIs(t, context.Cause(ctx), errLeaseLost)
}
