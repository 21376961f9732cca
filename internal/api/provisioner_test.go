package api

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/jobs"
	"sandbox-provisioner/internal/k8s"
	"sandbox-provisioner/internal/sandbox"
)

// A memoryQueue keeps the intents and the outcome of a1 as the streams do: what is written on a view that no longer holds
// is refused.
type memoryQueue struct {
	mu    sync.Mutex
	view  jobs.View
	asked []jobs.Intent
	looks int
	news  chan struct{} // closed when there is an outcome, or another stream
	// onLook and onPublish run before the request, and may make it fail.
	onLook    func(n int) error
	onPublish func(n int) error
	// silent makes looks hang.
	silent bool
	// quiet is a queue that has not been heard of for a while.
	quiet bool
	// late makes a publish fail although it is carried out.
	late error
	// work is what the workers record about an intent as soon as it is published; nil for nothing.
	work func(v jobs.View) *jobs.Outcome
}

func newMemoryQueue() *memoryQueue {
	return &memoryQueue{view: jobs.View{ID: "a1", Stream: 100, OutcomeStream: 200}, news: make(chan struct{})}
}

func (q *memoryQueue) Look(ctx context.Context, id string) (jobs.View, error) {
	if id != "a1" {
		return jobs.View{}, fmt.Errorf("asked about %q", id)
	}
	q.mu.Lock()
	q.looks++
	n, hook := q.looks, q.onLook
	q.mu.Unlock()
	if hook != nil {
		if err := hook(n); err != nil {
			return jobs.View{}, err
		}
	}
	if q.silent {
		<-ctx.Done()
	}
	return q.last(), ctx.Err()
}

func (q *memoryQueue) Newest(ctx context.Context, id string) (sandbox.Generation, error) {
	v, err := q.Look(ctx, id)
	return v.Generation(), err
}

func (q *memoryQueue) Unseen(string) (jobs.View, bool) {
	last := q.last()
	return jobs.View{ID: "a1", Stream: last.Stream, OutcomeStream: last.OutcomeStream}, !q.quiet
}

func (q *memoryQueue) Publish(ctx context.Context, v jobs.View, in jobs.Intent) (jobs.View, error) {
	q.mu.Lock()
	n, hook := len(q.asked)+1, q.onPublish
	q.mu.Unlock()
	if hook != nil {
		if err := hook(n); err != nil {
			return jobs.View{}, err
		}
	}
	return q.append(v, in)
}

func (q *memoryQueue) append(v jobs.View, in jobs.Intent) (jobs.View, error) {
	q.mu.Lock()
	if v.Stream != q.view.Stream || v.Seq != q.view.Seq {
		q.mu.Unlock()
		return jobs.View{}, jobs.ErrConflict
	}
	q.asked = append(q.asked, in)
	q.view.Seq++
	q.view.Intent = &in
	published, late, work := q.view, q.late, q.work
	q.late = nil
	q.mu.Unlock()
	if work != nil {
		if o := work(published); o != nil {
			q.record(*o)
		}
	}
	if late != nil {
		return jobs.View{}, late
	}
	v.Seq, v.Intent = published.Seq, published.Intent
	return v, nil
}

func (q *memoryQueue) record(o jobs.Outcome) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.view.Outcome = &o
	q.tellLocked()
}

func (q *memoryQueue) tellLocked() {
	close(q.news)
	q.news = make(chan struct{})
}

// lose replaces the streams by empty ones.
func (q *memoryQueue) lose() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.view = jobs.View{ID: "a1", Stream: q.view.Stream + 1, OutcomeStream: q.view.OutcomeStream + 1}
	q.tellLocked()
}

func (q *memoryQueue) last() jobs.View {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.view
}

// intents are those that were published.
func (q *memoryQueue) intents() []jobs.Intent {
	q.mu.Lock()
	defer q.mu.Unlock()
	return append([]jobs.Intent(nil), q.asked...)
}

// somebody else asks for something.
func (q *memoryQueue) create(spec sandbox.Spec) {
	q.elsewhere(q.last().Create(spec, "else", time.Now(), time.Hour))
}
func (q *memoryQueue) delete() { q.elsewhere(q.last().Delete("else", time.Now())) }

func (q *memoryQueue) elsewhere(in jobs.Intent) {
	if _, err := q.append(q.last(), in); err != nil {
		panic(err)
	}
}

// succeed records what the last intent asks for as done.
func (q *memoryQueue) succeed() { q.record(*succeed(q.last())) }

func succeed(v jobs.View) *jobs.Outcome {
	var found *sandbox.State
	if v.Intent.Op == jobs.Present {
		found = made(v.Seq)
		found.Capacity = capacity(*v.Intent.Spec)
		found.Broker = v.Intent.Spec.LarkBroker
	}
	o := v.Success(found, 1, time.Now())
	return &o
}

// made is the sandbox that the intent at seq makes.
func made(seq uint64) *sandbox.State {
	return &sandbox.State{ID: "a1", URL: "http://a1", Status: sandbox.Pending, Capacity: 10, PodUID: fmt.Sprint("pod-", seq)}
}

func (q *memoryQueue) Follow(string) jobs.Follower { return &memoryFollower{q} }

type memoryFollower struct{ q *memoryQueue }

func (f *memoryFollower) Next(ctx context.Context, stream int64) (*jobs.Outcome, error) {
	f.q.mu.Lock()
	news := f.q.news
	f.q.mu.Unlock()
	poll := time.NewTimer(time.Second)
	defer poll.Stop()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-news:
	case <-poll.C:
	}
	v := f.q.last()
	if v.Stream != stream {
		return nil, jobs.ErrConflict
	}
	return v.Outcome, nil
}

func (f *memoryFollower) Close() {}

// A scriptedCluster answers as it is told, and keeps what it was asked.
type scriptedCluster struct {
	mu    sync.Mutex
	calls []string
	get   func(n int) (k8s.Sighting, error)
	list  func() ([]k8s.Sighting, error)
	check func(l sandbox.Lineage) (*sandbox.State, error)
	gone  func(n int) (bool, error)
	// warning is what the Events say of a Pod, and explained how often that was asked for.
	warning   string
	explained int
}

func (c *scriptedCluster) call(what string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, what)
	for _, call := range c.calls {
		if call == what {
			n++
		}
	}
	return n
}

func (c *scriptedCluster) asked() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.calls...)
}

func (c *scriptedCluster) Get(context.Context, string) (k8s.Sighting, error) {
	return c.get(c.call("get"))
}

func (c *scriptedCluster) Check(ctx context.Context, _ string, _ sandbox.Spec, l sandbox.Lineage) (*sandbox.State, error) {
	c.call("check")
	state, err := c.check(l)
	return state, errors.Join(err, ctx.Err())
}

func (c *scriptedCluster) Gone(context.Context, string, sandbox.Lineage) (bool, error) {
	return c.gone(c.call("gone"))
}

func (c *scriptedCluster) Explain(_ context.Context, st sandbox.State) sandbox.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.explained++
	if c.warning != "" {
		st.Reason, st.Message = c.warning, "says an Event"
	}
	return st
}

func (c *scriptedCluster) PodUID(context.Context, string) (string, error) { return "", nil }

func (c *scriptedCluster) List(context.Context) ([]k8s.Sighting, error) { return c.list() }

// A bench is a Provisioner on doubles.
type bench struct {
	*Provisioner
	queue   *memoryQueue
	cluster *scriptedCluster
}

func newBench(kind k8s.ServiceType) *bench {
	b := &bench{queue: newMemoryQueue(), cluster: &scriptedCluster{
		check: func(sandbox.Lineage) (*sandbox.State, error) { return nil, nil },
		gone:  func(int) (bool, error) { return false, nil },
	}}
	settings := k8s.Settings{ServiceType: kind, Namespace: "ns", ClusterDomain: "local", Port: 8080, NodeHost: "node"}
	b.Provisioner = NewProvisioner(b.queue, b.cluster, settings, jobs.Config{Deadline: 15 * time.Minute, AckWait: 15 * time.Second}, NewMetrics(nil))
	return b
}

func small() sandbox.Spec { return sandbox.Spec{ThreadID: "t", UserID: "u"} }

func big() sandbox.Spec { return sandbox.Spec{ThreadID: "t", UserID: "u", MaxShellSessions: 50} }

func order(spec sandbox.Spec) Order { return Order{ID: "a1", Spec: spec, Wait: 10 * time.Second} }

func quota(v jobs.View) jobs.Outcome {
	return v.Failure(&sandbox.Failure{Reason: sandbox.ReasonQuota, Object: sandbox.Pod, Message: "exceeded quota"}, 1, time.Now())
}

func unavailable() error { return fmt.Errorf("%w: no answer", jobs.ErrUnavailable) }

// bubbled runs a test on a clock of its own, and makes sure that no goroutine is left.
func bubbled(t *testing.T, name string, test func(*testing.T)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, test)
	})
}

func TestACreateIsAnsweredFromItsOutcomeAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(k8s.NodePort)
		b.queue.work = succeed
		state, err := b.Create(t.Context(), order(small()))
		require.NoError(t, err)
		require.Equal(t, *made(1), state)
		require.Empty(t, b.cluster.asked(), "the cluster is not read")
		require.Zero(t, b.queue.looks, "nor the queue")
		in := b.queue.intents()[0]
		require.Equal(t, jobs.Present, in.Op)
		require.Equal(t, 15*time.Minute, in.Deadline.Sub(in.AcceptedAt))
		require.NotEmpty(t, in.RequestID)
	})
}

func TestWhoAsksForTheSameWaitsForTheSameIntent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(k8s.NodePort)
		states := make([]sandbox.State, 5)
		errs := make([]error, len(states))
		var all sync.WaitGroup
		for i := range states {
			all.Go(func() { states[i], errs[i] = b.Create(t.Context(), order(small())) })
		}
		synctest.Wait()
		require.Len(t, b.queue.intents(), 1)
		b.queue.succeed()
		all.Wait()
		for i := range states {
			require.NoError(t, errs[i])
			require.Equal(t, *made(1), states[i])
		}
	})
}

func TestWhatIsNotTheSameIsAskedFor(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*bench){
		"another spec is queued":          func(b *bench) { b.queue.create(big()) },
		"a delete is queued":              func(b *bench) { b.queue.delete() },
		"a delete succeeded":              func(b *bench) { b.queue.delete(); b.queue.succeed() },
		"the same has failed":             func(b *bench) { b.queue.create(small()); b.queue.record(quota(b.queue.last())) },
		"the same has been silent for 2m": func(b *bench) { b.queue.create(small()); time.Sleep(2 * time.Minute) },
		"it succeeded and has gone since": func(b *bench) { b.queue.create(small()); b.queue.succeed() },
	} {
		bubbled(t, name, func(t *testing.T) {
			b := newBench(k8s.NodePort)
			prepare(b)
			fence := uint64(0)
			if last := b.queue.last(); last.Intent.Op == jobs.Absent {
				fence = last.Seq
			}
			b.queue.work = succeed
			state, err := b.Create(t.Context(), order(small()))
			require.NoError(t, err)
			require.Equal(t, *made(2), state)
			require.Equal(t, fence, b.queue.last().Intent.Fence)
		})
	}
}

func TestASandboxThatLivesIsAnsweredFromTheClusterAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(k8s.NodePort)
		b.queue.delete()
		b.queue.create(small())
		b.queue.succeed()
		b.cluster.check = func(l sandbox.Lineage) (*sandbox.State, error) {
			require.Equal(t, b.queue.last().Lineage(), l)
			return made(2), nil
		}
		state, err := b.Create(t.Context(), order(small()))
		require.NoError(t, err)
		require.Equal(t, *made(2), state)
		require.Len(t, b.queue.intents(), 2, "nothing is published")
		require.Equal(t, 2, b.queue.looks, "once before and once after the cluster")
	})
}

// A delete that slipped in would kill what was just promised.
func TestADeleteBetweenTheClusterAndTheAnswerIsNoticed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(k8s.NodePort)
		b.queue.create(small())
		b.queue.succeed()
		b.cluster.check = func(sandbox.Lineage) (*sandbox.State, error) {
			b.queue.delete()
			b.queue.work = succeed
			return made(1), nil
		}
		state, err := b.Create(t.Context(), order(small()))
		require.NoError(t, err)
		require.Equal(t, *made(3), state)
		require.EqualValues(t, 2, b.queue.last().Intent.Fence)
	})
}

func TestTheClusterIsNotBelievedWithoutALivingIntent(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*bench){
		"nothing is known":   func(*bench) {},
		"a create is queued": func(b *bench) { b.queue.create(big()) },
		"a create failed":    func(b *bench) { b.queue.create(small()); b.queue.record(quota(b.queue.last())) },
		"a delete succeeded": func(b *bench) { b.queue.delete(); b.queue.succeed() },
	} {
		bubbled(t, name, func(t *testing.T) {
			b := newBench(k8s.NodePort)
			prepare(b)
			b.queue.work = succeed
			_, err := b.Create(t.Context(), order(small()))
			require.NoError(t, err)
			require.Empty(t, b.cluster.asked())
		})
	}
}

func TestWhatTheClusterSaysAgainstACreate(t *testing.T) {
	t.Parallel()
	tooSmall := &sandbox.Failure{Reason: sandbox.ReasonCapacity, Message: "too small"}
	down := &sandbox.Retry{Reason: sandbox.ReasonUnavailable, Err: errors.New("connection refused")}
	for name, test := range map[string]struct {
		err       error
		async     bool
		want      error
		published bool
	}{
		"a sandbox that will never serve":                  {tooSmall, false, tooSmall, false},
		"and nobody waits":                                 {tooSmall, true, tooSmall, false},
		"a cluster that does not answer":                   {down, false, down, false},
		"a cluster that does not answer, and nobody waits": {down, true, errPending, true},
	} {
		bubbled(t, name, func(t *testing.T) {
			b := newBench(k8s.NodePort)
			b.queue.create(small())
			b.queue.succeed()
			b.cluster.check = func(sandbox.Lineage) (*sandbox.State, error) { return nil, test.err }
			o := order(small())
			if o.Async = test.async; test.async {
				o.Wait = 0
			}
			_, err := b.Create(t.Context(), o)
			require.ErrorIs(t, err, test.want)
			require.Equal(t, test.published, len(b.queue.intents()) == 2)
		})
	}
}

func TestACreateThatIsOvertaken(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spec     sandbox.Spec
		overtake func(*memoryQueue)
		err      error
		want     uint64 // whose sandbox it gets
	}{
		"by a delete that is done":          {small(), func(q *memoryQueue) { q.delete(); q.succeed() }, errDeleted, 0},
		"by a delete that has trouble":      {small(), func(q *memoryQueue) { q.delete(); retrying(q, "") }, errDeleted, 0},
		"by a create of the same use":       {small(), func(q *memoryQueue) { q.create(big()); q.succeed() }, nil, 2},
		"by a create of less use":           {big(), func(q *memoryQueue) { q.create(small()); q.succeed() }, nil, 3},
		"by a create without the broker":    {sandbox.Spec{LarkBroker: true}, func(q *memoryQueue) { q.create(small()); q.succeed() }, nil, 3},
		"by a create that failed":           {small(), func(q *memoryQueue) { q.create(big()); q.record(quota(q.last())) }, nil, 3},
		"by a delete and a create together": {small(), func(q *memoryQueue) { q.delete(); q.create(small()); q.succeed() }, nil, 3},
	} {
		bubbled(t, name, func(t *testing.T) {
			b := newBench(k8s.NodePort)
			var state sandbox.State
			var err error
			done := make(chan struct{})
			go func() {
				defer close(done)
				state, err = b.Create(t.Context(), order(test.spec))
			}()
			synctest.Wait()
			b.queue.onPublish = func(int) error {
				b.queue.work = succeed // what it asks for a second time
				return nil
			}
			test.overtake(b.queue)
			<-done
			require.ErrorIs(t, err, test.err)
			if test.want != 0 {
				require.Equal(t, made(test.want).PodUID, state.PodUID)
			}
		})
	}
}

func retrying(q *memoryQueue, message string) {
	v := q.last()
	q.record(v.Progress(jobs.Retrying, &sandbox.Retry{Reason: sandbox.ReasonServer, Err: errors.New(message)}, 2, time.Now()))
}

func TestANewerCreateThatIsNotDoneYetIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(k8s.NodePort)
		done := make(chan error, 1)
		go func() {
			_, err := b.Create(t.Context(), order(small()))
			done <- err
		}()
		synctest.Wait()
		b.queue.create(big())
		b.queue.record(b.queue.last().Progress(jobs.Running, nil, 1, time.Now()))
		synctest.Wait()
		require.Empty(t, done)
		b.queue.succeed()
		require.NoError(t, <-done)
	})
}

func TestAFailureIsPassedOnWhenItIsUndone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(k8s.NodePort)
		done := make(chan error, 1)
		go func() {
			_, err := b.Create(t.Context(), order(small()))
			done <- err
		}()
		synctest.Wait()
		b.queue.record(quota(b.queue.last()))
		synctest.Wait()
		require.Empty(t, done, "nothing is to be left behind when the client hears of it")
		b.queue.record(b.queue.last().Undone(time.Now()))
		require.Equal(t, &sandbox.Failure{Reason: sandbox.ReasonQuota, Object: sandbox.Pod, Message: "exceeded quota"}, <-done)
	})
}

func TestAFailureThatIsNotUndoneInTimeIsPassedOnAllTheSame(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(k8s.NodePort)
		b.queue.work = func(v jobs.View) *jobs.Outcome {
			o := quota(v)
			return &o
		}
		start := time.Now()
		_, err := b.Create(t.Context(), order(small()))
		var failure *sandbox.Failure
		require.ErrorAs(t, err, &failure)
		require.Equal(t, sandbox.ReasonQuota, failure.Reason)
		require.Equal(t, 10*time.Second, time.Since(start))
	})
}

func TestACreateThatTakesLongerThanOneWaitsIsPending(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]time.Duration{"some time": 10 * time.Second, "no time": 0} {
		bubbled(t, name, func(t *testing.T) {
			b := newBench(k8s.NodePort)
			start := time.Now()
			_, err := b.Create(t.Context(), Order{ID: "a1", Spec: small(), Wait: wait, Async: wait == 0})
			require.ErrorIs(t, err, errPending)
			require.Equal(t, wait, time.Since(start))
			require.Len(t, b.queue.intents(), 1, "it is safe in the queue")
		})
	}
}

func TestAnOutcomeThatIsThereAlreadyIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(k8s.NodePort)
		// Its own intent, found again after its acknowledgement was lost, and carried out by then.
		b.queue.work, b.queue.late = succeed, unavailable()
		o := order(small())
		o.Wait = 0
		state, err := b.Create(t.Context(), o)
		require.NoError(t, err)
		require.Equal(t, *made(1), state)
	})
}

func TestAClientThatGoesAwayIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := newBench(k8s.NodePort).Create(ctx, order(small()))
		require.Error(t, err)
		require.Equal(t, time.Second, time.Since(start))
	})
}

func TestWhatWasInAStreamThatIsLostIsAskedForAgain(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(*bench) error{
		"a create": func(b *bench) error { _, err := b.Create(context.Background(), order(small())); return err },
		"a delete": func(b *bench) error { return b.Delete(context.Background(), "a1", 10*time.Second) },
	} {
		bubbled(t, name, func(t *testing.T) {
			b := newBench(k8s.NodePort)
			done := make(chan error, 1)
			go func() { done <- do(b) }()
			synctest.Wait()
			b.queue.lose()
			synctest.Wait()
			asked := b.queue.intents()
			require.Len(t, asked, 2)
			require.NotEqual(t, asked[0].RequestID, asked[1].RequestID)
			b.queue.succeed()
			require.NoError(t, <-done)
		})
	}
}

func TestAnIntentWhoseAcknowledgementWasLost(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare   func(*bench)
		available bool
		asked     int
	}{
		"is found by its request id": {func(b *bench) { b.queue.late = unavailable() }, true, 1},
		"is reported when it is not there": {func(b *bench) {
			b.queue.onPublish = func(int) error { return unavailable() }
		}, false, 0},
		"is reported when it has been overtaken since": {func(b *bench) {
			b.queue.late = unavailable()
			b.queue.onLook = func(n int) error {
				if n == 1 {
					b.queue.delete()
				}
				return nil
			}
		}, false, 2},
		"is reported when nobody can tell": {func(b *bench) {
			b.queue.late = unavailable()
			b.queue.onLook = func(int) error {
				return unavailable()
			}
		}, false, 1},
	} {
		bubbled(t, name, func(t *testing.T) {
			b := newBench(k8s.NodePort)
			test.prepare(b)
			done := make(chan error, 1)
			go func() {
				_, err := b.Create(t.Context(), order(small()))
				done <- err
			}()
			synctest.Wait()
			require.Len(t, b.queue.intents(), test.asked, "it is never published twice")
			if test.available {
				require.Empty(t, done, "it waits for it")
				b.queue.succeed()
				require.NoError(t, <-done)
				return
			}
			require.ErrorIs(t, <-done, jobs.ErrUnavailable)
		})
	}
}

// A stream that is there, and does not take our subjects, is found again and again.
func TestAStreamThatTakesNothingIsNotTriedForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(k8s.NodePort)
		tries := 0
		b.queue.onPublish = func(int) error {
			tries++
			return fmt.Errorf("%w: %w", jobs.ErrMissing, unavailable())
		}
		_, err := b.Create(t.Context(), order(small()))
		require.ErrorIs(t, err, jobs.ErrUnavailable)
		require.Equal(t, 2, tries)
	})
}

// What is published into a NATS that is paused may be stored long after the 503.
func TestNothingIsPublishedIntoSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(k8s.NodePort)
		b.queue.quiet = true
		b.queue.onLook = func(int) error { return unavailable() }
		_, err := b.Create(t.Context(), order(small()))
		require.ErrorIs(t, err, jobs.ErrUnavailable)
		require.Empty(t, b.queue.intents())

		b.queue.onLook, b.queue.work = nil, succeed
		_, err = b.Create(t.Context(), order(small()))
		require.NoError(t, err)
		require.Equal(t, 2, b.queue.looks, "it looks whether there is one")
	})
}

func TestWithoutNATSNothingIsPromised(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(k8s.NodePort)
		b.queue.onLook = func(int) error { return unavailable() }
		b.queue.onPublish = b.queue.onLook
		_, err := b.Create(t.Context(), order(small()))
		require.ErrorIs(t, err, jobs.ErrUnavailable)
		require.ErrorIs(t, b.Delete(t.Context(), "a1", time.Second), jobs.ErrUnavailable)
		require.Empty(t, b.cluster.asked())
	})
}

func TestWhoeverIsSecondLooksAgain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		between func(*memoryQueue)
		asked   int
		fence   uint64
	}{
		"and joins the same":            {func(q *memoryQueue) { q.create(small()) }, 1, 0},
		"and asks after another create": {func(q *memoryQueue) { q.create(big()) }, 2, 0},
		"and asks after a delete":       {func(q *memoryQueue) { q.delete() }, 2, 1},
	} {
		bubbled(t, name, func(t *testing.T) {
			b := newBench(k8s.NodePort)
			var once sync.Once
			b.queue.onPublish = func(int) error {
				once.Do(func() { test.between(b.queue) })
				return nil
			}
			done := make(chan error, 1)
			go func() {
				_, err := b.Create(t.Context(), order(small()))
				done <- err
			}()
			synctest.Wait()
			require.Len(t, b.queue.intents(), test.asked)
			require.Equal(t, test.fence, b.queue.last().Intent.Fence)
			b.queue.succeed()
			require.NoError(t, <-done)
		})
	}
}

func TestADeleteWaitsForItsOutcome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(k8s.NodePort)
		b.queue.create(small())
		b.queue.succeed()
		done := make(chan error, 1)
		go func() { done <- b.Delete(t.Context(), "a1", 12*time.Second) }()
		synctest.Wait()
		require.Empty(t, done, "the outcome of the create before it is none of its own")
		require.Equal(t, jobs.Absent, b.queue.last().Intent.Op)
		b.queue.succeed()
		require.NoError(t, <-done)
		require.Empty(t, b.cluster.asked())
	})
}

func TestADeleteJoinsOneThatIsQueuedAndNoOther(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare func(*memoryQueue)
		asked   int
	}{
		"a delete that is queued": {func(q *memoryQueue) { q.delete() }, 1},
		"a delete that is done":   {func(q *memoryQueue) { q.delete(); q.succeed() }, 2},
		"a create that is queued": {func(q *memoryQueue) { q.create(small()) }, 2},
		"nothing":                 {func(*memoryQueue) {}, 1},
	} {
		bubbled(t, name, func(t *testing.T) {
			b := newBench(k8s.NodePort)
			test.prepare(b.queue)
			done := make(chan error, 1)
			go func() { done <- b.Delete(t.Context(), "a1", 12*time.Second) }()
			synctest.Wait()
			require.Len(t, b.queue.intents(), test.asked)
			b.queue.succeed()
			require.NoError(t, <-done)
		})
	}
}

func TestADeleteThatIsOvertakenByACreate(t *testing.T) {
	t.Parallel()
	running := func(q *memoryQueue) { q.record(q.last().Progress(jobs.Running, nil, 1, time.Now())) }
	failed := func(q *memoryQueue) { q.record(quota(q.last())) }
	yes, no := func(int) (bool, error) { return true, nil }, func(int) (bool, error) { return false, nil }
	later := func(n int) (bool, error) { return n > 2, nil }
	unreadable := func(int) (bool, error) {
		return true, &sandbox.Retry{Reason: sandbox.ReasonUnavailable, Err: errors.New("connection refused")}
	}
	for name, test := range map[string]struct {
		overtake func(*memoryQueue)
		gone     func(int) (bool, error)
		err      error
		asked    bool
	}{
		"that succeeded, and so removed what was before":     {func(q *memoryQueue) { q.succeed() }, no, nil, false},
		"that runs while nothing older is left":              {running, yes, nil, true},
		"that runs while something older is left":            {running, no, errPending, true},
		"that runs while something older goes":               {running, later, nil, true},
		"that runs while nobody can tell what is left":       {running, unreadable, errPending, true},
		"that failed while something older is left":          {failed, no, errPending, true},
		"that failed while nothing older is left":            {failed, yes, nil, true},
		"that failed and another that runs, with older left": {func(q *memoryQueue) { failed(q); q.create(small()); running(q) }, no, errPending, true},
	} {
		bubbled(t, name, func(t *testing.T) {
			b := newBench(k8s.NodePort)
			b.cluster.gone = test.gone
			done := make(chan error, 1)
			start := time.Now()
			go func() { done <- b.Delete(t.Context(), "a1", 12*time.Second) }()
			synctest.Wait()
			b.queue.create(big())
			synctest.Wait()
			require.Empty(t, done)
			test.overtake(b.queue)
			require.ErrorIs(t, <-done, test.err)
			require.Equal(t, test.asked, len(b.cluster.asked()) > 0)
			require.Equal(t, test.err != nil, time.Since(start) == 12*time.Second)
		})
	}
}

func TestADeleteInTroubleTellsOfIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(k8s.NodePort)
		b.queue.work = func(v jobs.View) *jobs.Outcome {
			o := v.Progress(jobs.Retrying, &sandbox.Retry{Err: errors.New("pod: internal error")}, 3, time.Now())
			return &o
		}
		start := time.Now()
		err := b.Delete(t.Context(), "a1", 12*time.Second)
		var partial *partialError
		require.ErrorAs(t, err, &partial)
		require.EqualError(t, err, "Partial cleanup: pod: internal error")
		require.Equal(t, 12*time.Second, time.Since(start))
	})
}

func TestADeleteOfWhichNothingIsHeardIsPending(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		require.ErrorIs(t, newBench(k8s.NodePort).Delete(t.Context(), "a1", 12*time.Second), errPending)
		require.Equal(t, 12*time.Second, time.Since(start))
	})
}

// The table of the contract for GET /api/sandboxes/{id}.
func TestGet(t *testing.T) {
	t.Parallel()
	const dns = "http://sandbox-a1-svc.ns.svc.local:8080"
	none := k8s.Sighting{State: sandbox.State{ID: "a1", Status: sandbox.NotFound}}
	service := none
	service.Service, service.State.URL = true, "http://node:30000"
	portless := service
	portless.State.URL = ""
	pod := k8s.Sighting{Pod: true, State: sandbox.State{ID: "a1", Status: sandbox.Running}}
	whole := k8s.Sighting{Pod: true, Service: true, State: sandbox.State{ID: "a1", Status: sandbox.Running, URL: "http://node:30000"}}
	always := func(s k8s.Sighting) func(int) (k8s.Sighting, error) {
		return func(int) (k8s.Sighting, error) { return s, nil }
	}
	then := func(first, second k8s.Sighting) func(int) (k8s.Sighting, error) {
		return func(n int) (k8s.Sighting, error) {
			if n == 1 {
				return first, nil
			}
			return second, nil
		}
	}
	nothing := func(*memoryQueue) {}
	queued := func(q *memoryQueue) { q.create(small()) }
	living := func(q *memoryQueue) { q.create(small()); q.succeed() }
	failed := func(q *memoryQueue) { q.create(small()); q.record(quota(q.last())) }
	deleted := func(q *memoryQueue) { q.delete() }
	down := func(q *memoryQueue) { q.create(small()); q.onLook = func(int) error { return unavailable() } }
	for name, test := range map[string]struct {
		kind   k8s.ServiceType
		seen   func(int) (k8s.Sighting, error)
		queue  func(*memoryQueue)
		exists bool
		status sandbox.Status
		url    string
		job    bool
		reads  int
	}{
		"Service and Pod":                         {k8s.NodePort, always(whole), queued, true, sandbox.Running, "http://node:30000", false, 1},
		"Service, no Pod, nothing queued":         {k8s.NodePort, always(service), nothing, true, sandbox.NotFound, "http://node:30000", false, 1},
		"Service, no Pod, create queued":          {k8s.NodePort, always(service), queued, true, sandbox.Pending, "http://node:30000", true, 1},
		"Service, no Pod, delete queued":          {k8s.NodePort, always(service), deleted, true, sandbox.NotFound, "http://node:30000", false, 1},
		"Service without its nodePort":            {k8s.NodePort, always(portless), nothing, false, "", "", false, 1},
		"nothing at all":                          {k8s.NodePort, always(none), nothing, false, "", "", false, 1},
		"nothing, create queued, NodePort":        {k8s.NodePort, always(none), queued, false, "", "", true, 1},
		"nothing, create queued, ClusterIP":       {k8s.ClusterIP, always(none), queued, true, sandbox.Pending, dns, true, 1},
		"nothing, create failed":                  {k8s.ClusterIP, always(none), failed, false, "", "", true, 1},
		"nothing, delete queued":                  {k8s.ClusterIP, always(none), deleted, false, "", "", false, 1},
		"a Pod alone, nothing queued":             {k8s.ClusterIP, always(pod), nothing, false, "", "", false, 1},
		"a Pod alone, create queued":              {k8s.ClusterIP, always(pod), queued, true, sandbox.Pending, dns, true, 1},
		"a Pod alone, create queued, NodePort":    {k8s.NodePort, always(pod), queued, false, "", "", true, 1},
		"it is made between the two looks":        {k8s.NodePort, then(none, whole), living, true, sandbox.Running, "http://node:30000", false, 2},
		"it was made and has gone":                {k8s.NodePort, always(none), living, false, "", "", false, 2},
		"its Pod has gone":                        {k8s.NodePort, always(service), living, true, sandbox.NotFound, "http://node:30000", false, 2},
		"NATS is down, and the cluster's word":    {k8s.ClusterIP, always(service), down, true, sandbox.NotFound, "http://node:30000", false, 1},
		"NATS is down, and the cluster's silence": {k8s.ClusterIP, always(none), down, false, "", "", false, 1},
	} {
		bubbled(t, name, func(t *testing.T) {
			b := newBench(test.kind)
			test.queue(b.queue)
			b.cluster.get = test.seen
			found, err := b.Get(t.Context(), "a1")
			require.NoError(t, err)
			require.Equal(t, test.exists, found.Exists)
			require.Equal(t, test.job, found.Job != nil)
			require.Len(t, b.cluster.asked(), test.reads)
			if test.exists {
				require.Equal(t, test.status, found.Sandbox.Status)
				require.Equal(t, test.url, found.Sandbox.URL)
			}
		})
	}
}

func TestAClusterThatCannotBeReadIsAnErrorAndNeverAbsence(t *testing.T) {
	t.Parallel()
	down := &sandbox.Retry{Reason: sandbox.ReasonUnavailable, Err: errors.New("connection refused")}
	for name, fails := range map[string]int{"at the first read": 1, "at the second": 2} {
		bubbled(t, name, func(t *testing.T) {
			b := newBench(k8s.NodePort)
			b.queue.create(small())
			b.queue.succeed()
			b.cluster.get = func(n int) (k8s.Sighting, error) {
				if n == fails {
					return k8s.Sighting{}, down
				}
				return k8s.Sighting{State: sandbox.State{ID: "a1"}}, nil
			}
			_, err := b.Get(t.Context(), "a1")
			require.ErrorIs(t, err, down)
		})
	}
}

func TestASandboxThatIsWholeNeedsNoLookAtTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(k8s.NodePort)
		b.cluster.get = func(int) (k8s.Sighting, error) { return k8s.Sighting{Pod: true, Service: true}, nil }
		_, err := b.Get(t.Context(), "a1")
		require.NoError(t, err)
		require.Zero(t, b.queue.looks)
	})
}

func TestACreateThatIsNotDoneSaysWhatIsInTheWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(k8s.NodePort)
		b.queue.work = func(v jobs.View) *jobs.Outcome {
			o := v.Progress(jobs.Retrying, &sandbox.Retry{Reason: sandbox.ReasonServer, Err: errors.New("etcd is ill")}, 1, time.Now())
			return &o
		}
		_, err := b.Create(t.Context(), order(small()))
		require.ErrorIs(t, err, errPending)
		require.ErrorContains(t, err, "etcd is ill")
	})
}

// A list does not ask: it would be a request for each sandbox.
func TestOneSandboxIsExplainedFromFurtherAway(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		service   bool
		queue     func(*memoryQueue)
		explained int
	}{
		"one that is whole":         {true, func(*memoryQueue) {}, 1},
		"one while NATS is down":    {false, func(q *memoryQueue) { q.onLook = func(int) error { return unavailable() } }, 0},
		"one that is to be created": {false, func(q *memoryQueue) { q.create(small()) }, 1},
		"one that is not found":     {false, func(*memoryQueue) {}, 0},
	} {
		bubbled(t, name, func(t *testing.T) {
			b := newBench(k8s.ClusterIP)
			test.queue(b.queue)
			b.cluster.warning = "FailedMount"
			seen := k8s.Sighting{Pod: true, Service: test.service, State: sandbox.State{ID: "a1", Status: sandbox.Pending, URL: "http://a1"}}
			b.cluster.get = func(int) (k8s.Sighting, error) { return seen, nil }
			b.cluster.list = func() ([]k8s.Sighting, error) { return []k8s.Sighting{seen}, nil }
			found, err := b.Get(t.Context(), "a1")
			require.NoError(t, err)
			require.Equal(t, test.explained, b.cluster.explained)
			require.Equal(t, test.explained == 1, found.Sandbox.Reason == "FailedMount")

			b.cluster.explained = 0
			_, err = b.List(t.Context())
			require.NoError(t, err)
			require.Zero(t, b.cluster.explained)
		})
	}
}

func TestASilentQueueDelaysAReadOnlyALittle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(k8s.ClusterIP)
		b.queue.create(small())
		b.queue.silent = true
		b.cluster.get = func(int) (k8s.Sighting, error) {
			return k8s.Sighting{Service: true, State: sandbox.State{ID: "a1", Status: sandbox.NotFound, URL: "http://a1"}}, nil
		}
		start := time.Now()
		found, err := b.Get(t.Context(), "a1")
		require.NoError(t, err)
		require.True(t, found.Exists)
		require.Equal(t, sandbox.NotFound, found.Sandbox.Status, "the cluster's word stands")
		require.Equal(t, 500*time.Millisecond, time.Since(start))
	})
}

// What was on its way to Kubernetes when a delete was answered arrives all the same, and is removed a moment later.
func TestWhatADeleteHasOvertakenIsNotShown(t *testing.T) {
	t.Parallel()
	deleted := func(q *memoryQueue) { q.create(small()); q.delete(); q.succeed() }
	living := func(q *memoryQueue) { q.create(small()); q.succeed() }
	for name, test := range map[string]struct {
		queue        func(*memoryQueue)
		age          time.Duration
		pod, service bool
		shown        bool
		looks        int
	}{
		"young, after a delete":                   {deleted, time.Second, true, true, false, 1},
		"a young Service, after a delete":         {deleted, time.Second, false, true, false, 1},
		"old, after a delete":                     {deleted, time.Minute, true, true, true, 0},
		"young, and asked for":                    {living, time.Second, true, true, true, 1},
		"young, and asked for again":              {func(q *memoryQueue) { deleted(q); q.create(small()) }, time.Second, true, true, true, 1},
		"young, and its delete is not yet done":   {func(q *memoryQueue) { living(q); q.delete() }, time.Second, true, true, true, 1},
		"young, and nobody knows":                 {func(*memoryQueue) {}, time.Second, true, true, true, 1},
		"young, after a delete, with NATS down":   {func(q *memoryQueue) { deleted(q); q.onLook = func(int) error { return unavailable() } }, time.Second, true, true, true, 1},
		"young, after a delete, with NATS silent": {func(q *memoryQueue) { deleted(q); q.silent = true }, time.Second, true, true, true, 1},
	} {
		bubbled(t, name, func(t *testing.T) {
			b := newBench(k8s.NodePort)
			test.queue(b.queue)
			seen := k8s.Sighting{Pod: test.pod, Service: test.service, State: sandbox.State{
				ID: "a1", URL: "http://a1", Status: sandbox.Running, CreatedAt: time.Now().Add(-test.age),
			}}
			b.cluster.get = func(int) (k8s.Sighting, error) { return seen, nil }
			b.cluster.list = func() ([]k8s.Sighting, error) { return []k8s.Sighting{seen}, nil }
			found, err := b.Get(t.Context(), "a1")
			require.NoError(t, err)
			require.Equal(t, test.shown, found.Exists)
			require.Equal(t, test.looks, b.queue.looks)

			states, err := b.List(t.Context())
			require.NoError(t, err)
			require.Equal(t, test.shown, len(states) == 1)
		})
	}
}

func TestAListAsksTheQueueOnlyForSoMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(k8s.NodePort)
		all := make([]k8s.Sighting, 500)
		for i := range all {
			all[i] = k8s.Sighting{Pod: true, Service: true, State: sandbox.State{ID: "a1", CreatedAt: time.Now()}}
		}
		b.cluster.list = func() ([]k8s.Sighting, error) { return all, nil }
		states, err := b.List(t.Context())
		require.NoError(t, err)
		require.Len(t, states, len(all))
		require.Equal(t, maxListLooks, b.queue.looks)

		b.queue.silent = true
		start := time.Now()
		states, err = b.List(t.Context())
		require.NoError(t, err)
		require.Len(t, states, len(all), "the cluster's word stands")
		require.Equal(t, 500*time.Millisecond, time.Since(start))
	})
}

func TestAListThatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	b := newBench(k8s.NodePort)
	b.cluster.list = func() ([]k8s.Sighting, error) { return nil, unavailable() }
	_, err := b.List(t.Context())
	require.Error(t, err)
}
