package jobs

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/sandbox"
)

func announce(t *testing.T, q *Queue) {
	t.Helper()
	stop, err := q.Announce()
	require.NoError(t, err)
	t.Cleanup(stop)
	require.NoError(t, q.nc.Flush()) // the server knows of the subscription
}

func follow(t *testing.T, q *Queue, id string) *follower {
	t.Helper()
	f := q.Follow(id)
	t.Cleanup(f.Close)
	return f.(*follower)
}

// next is the first outcome that a follower hears of.
func next(t *testing.T, f Follower, stream int64) *Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	for {
		o, err := f.Next(ctx, stream)
		require.NoError(t, err)
		if o != nil {
			return o
		}
	}
}

func TestFollowersOfAnIDHearOfItsOutcomes(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	api, worker := b.queue(), b.queue()
	announce(t, api)
	first, second, other := follow(t, api, "a1"), follow(t, api, "a1"), follow(t, api, "b2")
	v := ask(t, api, "a1")
	o := v.Success(&sandbox.State{ID: "a1", PodUID: "u1"}, 1, noon)
	asked := time.Now()
	record(t, worker, v, o)

	for _, f := range []*follower{first, second} {
		require.Equal(t, &o, next(t, f, v.Stream))
	}
	require.Less(t, time.Since(asked), pollInterval, "they were told, and did not have to ask")
	require.Empty(t, other.news)
}

func TestAFollowerThatIsSlowHearsOfTheNewestOutcome(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	q := b.queue()
	announce(t, q)
	f := follow(t, q, "a1")
	v := ask(t, q, "a1")
	v = record(t, q, v, v.Progress(Running, nil, 1, noon))
	v = record(t, q, v, v.Progress(Retrying, nil, 2, noon))
	v = record(t, q, v, v.Success(nil, 3, noon))
	require.NoError(t, q.nc.Flush())
	require.Eventually(t, func() bool { return next(t, f, v.Stream).State == Succeeded }, soon, time.Millisecond)
}

// A plain subscription on the subject of outcomes would also carry those that the stream has refused.
func TestAnOutcomeThatTheStreamRefusedIsNotAnnounced(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	q := b.queue()
	heard := make(chan *nats.Msg, 10)
	listener := b.connect()
	_, err := listener.ChanSubscribe("sandbox.announced.>", heard)
	require.NoError(t, err)
	require.NoError(t, listener.Flush())

	v := ask(t, q, "a1")
	done := record(t, q, v, v.Success(nil, 1, noon))
	_, err = q.Record(t.Context(), v, v.Failure(&sandbox.Failure{Reason: sandbox.ReasonDeadline}, 1, noon))
	require.ErrorIs(t, err, ErrConflict)
	record(t, q, done, done.Progress(Running, nil, 7, noon))

	require.Equal(t, done.Outcome, q.decodeOutcome((<-heard).Data, v.Stream))
	require.Equal(t, 7, q.decodeOutcome((<-heard).Data, v.Stream).Attempts, "the refused one came between")
}

func TestAFollowerSeesAnOutcomeWhoseAnnouncementWasMissed(t *testing.T) {
	t.Parallel()
	q := newBroker(t).queue() // nobody announces
	f := follow(t, q, "a1")
	v := ask(t, q, "a1")
	o := v.Success(nil, 1, noon)
	record(t, q, v, o)
	require.Equal(t, &o, next(t, f, v.Stream))
}

func TestAnAnnouncementsListenerComesBackWithTheConnection(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	api, worker := b.queue(), b.queue()
	announce(t, api)
	f := follow(t, api, "a1")
	ask(t, api, "a1")
	b.restore()
	awaitConnection(t, api)
	awaitConnection(t, worker)
	require.NoError(t, api.nc.Flush())
	v := look(t, worker, "a1")
	record(t, worker, v, v.Success(nil, 1, noon))
	require.Eventually(t, func() bool { return len(f.news) == 1 }, soon, time.Millisecond)
}

func TestAFollowerLearnsThatItsStreamWasLost(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	q := b.queue()
	announce(t, q)
	f := follow(t, q, "a1")
	v := ask(t, q, "a1")
	b.replace()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	for {
		o, err := f.Next(ctx, v.Stream)
		require.Nil(t, o)
		if err != nil {
			require.ErrorIs(t, err, ErrConflict)
			return
		}
	}
}

func TestAnOutcomeOfAnotherStreamIsNoNews(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	q := b.queue()
	announce(t, q)
	f := follow(t, q, "a1")
	v := ask(t, q, "a1")
	record(t, q, v, v.Success(nil, 1, noon))
	require.Eventually(t, func() bool { return len(f.news) == 1 }, soon, time.Millisecond)
	o, err := f.Next(t.Context(), v.Stream+1)
	require.NoError(t, err)
	require.Nil(t, o)
}

func TestAFollowerWaitsWhileNATSIsDown(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	q := b.queue()
	f := follow(t, q, "a1")
	v := ask(t, q, "a1")
	b.stop()
	o, err := f.Next(t.Context(), v.Stream)
	require.NoError(t, err, "an outage is no reason to give up")
	require.Nil(t, o)
}

func TestAFollowerStopsWithItsCaller(t *testing.T) {
	t.Parallel()
	q := newBroker(t).queue()
	f := follow(t, q, "a1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := f.Next(ctx, 1)
	require.ErrorIs(t, err, context.Canceled)
}

func TestNothingIsKeptOfFollowersThatHaveClosed(t *testing.T) {
	t.Parallel()
	q := newBroker(t).queue()
	first, second := q.Follow("a1"), q.Follow("a1")
	first.Close()
	require.Len(t, q.followers.by["a1"], 1)
	second.Close()
	second.Close()
	require.Empty(t, q.followers.by)
	q.followers.tell("a1", nil) // a late announcement finds nobody
}
