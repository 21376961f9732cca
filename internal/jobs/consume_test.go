package jobs

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// receive fetches until one delivery has come, and returns it.
func receive(t *testing.T, c *Consumer, n int) *Delivery {
	t.Helper()
	over := time.Now().Add(soon)
	for time.Now().Before(over) {
		deliveries, err := c.Fetch(t.Context(), n)
		if err != nil {
			require.ErrorIs(t, err, ErrUnavailable)
			continue
		}
		var first *Delivery
		for d := range deliveries {
			if first == nil {
				first = d
			}
		}
		if first != nil {
			return first
		}
	}
	require.FailNow(t, "no delivery came")
	return nil
}

// requireNothing fetches in vain, for longer than AckWait if that is short, and else once.
func requireNothing(t *testing.T, c *Consumer) {
	t.Helper()
	for asked := time.Now(); ; {
		deliveries, err := c.Fetch(t.Context(), 1)
		require.NoError(t, err)
		for d := range deliveries {
			require.Failf(t, "nothing was to come", "%s, attempt %d", d.ID, d.Attempt)
		}
		if time.Since(asked) > min(fetchWait-fetchWait/10, c.q.cfg.AckWait*3/2) {
			return
		}
	}
}

func TestADeliveryNamesItsID(t *testing.T) {
	t.Parallel()
	q := newBroker(t).queue()
	ask(t, q, "a1")
	c := q.Consumer()
	before := time.Now()
	d := receive(t, c, 1)
	require.Equal(t, "a1", d.ID)
	require.Equal(t, 1, d.Attempt)
	require.WithinRange(t, d.Until, before.Add(14*time.Second), time.Now().Add(14*time.Second),
		"a second less than AckWait, counted from before the request")
}

func TestADeliveryComesWhileTheFetchIsOpen(t *testing.T) {
	t.Parallel()
	q := newBroker(t).queue()
	look(t, q, "a1")
	deliveries, err := q.Consumer().Fetch(t.Context(), 2)
	require.NoError(t, err)
	for _, id := range []string{"a1", "b2"} {
		ask(t, q, id)
		d := <-deliveries
		require.NotNil(t, d, "the fetch ended too early")
		require.Equal(t, id, d.ID)
	}
	require.Nil(t, <-deliveries, "it ends when it has what it asked for")
}

func TestAFetchEndsByItself(t *testing.T) {
	t.Parallel()
	q := newBroker(t).queue()
	asked := time.Now()
	requireNothing(t, q.Consumer())
	require.Less(t, time.Since(asked), fetchWait+2*time.Second)
}

func TestAnAcknowledgedJobDoesNotComeAgain(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Delivery) error{
		"done":              (*Delivery).Ack,
		"beyond repair":     func(d *Delivery) error { return d.Term("MalformedIntent") },
		"handed back, once": func(d *Delivery) error { return d.Nak(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newBroker(t).queue(func(c *Config) { c.AckWait = time.Second })
			ask(t, q, "a1")
			c := q.Consumer()
			require.NoError(t, end(receive(t, c, 1)))
			requireNothing(t, c) // for longer than AckWait
		})
	}
}

func TestAJobThatIsHandedBackComesAgainAfterItsDelay(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	q := b.queue()
	ask(t, q, "a1")
	mine, other := q.Consumer(), b.queue().Consumer()

	require.NoError(t, receive(t, mine, 1).Nak(0))
	again := receive(t, other, 1)
	require.Equal(t, 2, again.Attempt, "another worker gets it at once")

	handedBack := time.Now()
	require.NoError(t, again.Nak(700*time.Millisecond))
	third := receive(t, mine, 1)
	require.Equal(t, 3, third.Attempt)
	require.GreaterOrEqual(t, time.Since(handedBack), 700*time.Millisecond)
}

func TestAJobWhoseWorkerIsSilentGoesToAnotherOne(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	q := b.queue(func(c *Config) { c.AckWait = time.Second })
	ask(t, q, "a1")
	receive(t, q.Consumer(), 1)
	d := receive(t, b.queue(func(c *Config) { c.AckWait = time.Second }).Consumer(), 1)
	require.Equal(t, "a1", d.ID)
	require.Equal(t, 2, d.Attempt)
}

func TestAnExtendedJobStaysBeyondAckWait(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	short := func(c *Config) { c.AckWait = time.Second }
	q := b.queue(short)
	ask(t, q, "a1")
	mine := receive(t, q.Consumer(), 1)

	others := b.queue(short).Consumer()
	for start := time.Now(); time.Since(start) < 2*time.Second; {
		before := time.Now()
		until, err := mine.Extend(t.Context())
		require.NoError(t, err)
		require.WithinRange(t, until, before.Add(time.Second/2), time.Now().Add(time.Second-1), "before AckWait is over")
		deliveries, err := others.Fetch(t.Context(), 1) // which takes a quarter of AckWait
		require.NoError(t, err)
		require.Nil(t, <-deliveries, "it was handed to somebody else")
	}
	require.Equal(t, 2, receive(t, b.queue(short).Consumer(), 1).Attempt, "it goes on when the signs of life end")
}

func TestAnExtensionThatIsNotConfirmedIsNone(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	q := b.queue(func(c *Config) { c.Timeout = 300 * time.Millisecond })
	ask(t, q, "a1")
	d := receive(t, q.Consumer(), 1)
	b.silence()
	until, err := d.Extend(t.Context())
	require.ErrorIs(t, err, ErrUnavailable)
	require.Zero(t, until)
}

// NATS sends to an open request whether or not anybody is still interested; what it sends to nobody lies idle for AckWait.
func TestADeliveryIsNotLostWhenItsCallerIsToStop(t *testing.T) {
	t.Parallel()
	q := newBroker(t).queue()
	look(t, q, "a1")
	ctx, cancel := context.WithCancel(t.Context())
	deliveries, err := q.Consumer().Fetch(ctx, 1)
	require.NoError(t, err)
	cancel()
	ask(t, q, "a1")
	d := <-deliveries
	require.NotNil(t, d)
	require.Equal(t, "a1", d.ID)
}

func TestJobsSurviveARestartOfTheServer(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	q := b.queue()
	c := q.Consumer()
	ask(t, q, "a1")
	require.NoError(t, receive(t, c, 1).Ack())
	require.NoError(t, q.nc.Flush())
	ask(t, q, "b2")

	b.stop()
	b.start()
	awaitConnection(t, q)
	require.Equal(t, "b2", receive(t, c, 2).ID)
}

func TestAConsumerComesBackByItself(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*testing.T, *broker, *Queue){
		"after the store was lost": func(t *testing.T, b *broker, q *Queue) {
			b.replace()
			awaitConnection(t, q)
		},
		"after the stream was removed": func(t *testing.T, b *broker, _ *Queue) {
			require.NoError(t, b.jetstream().DeleteStream(t.Context(), intentStream))
		},
		"after it was removed": func(t *testing.T, b *broker, _ *Queue) {
			require.NoError(t, b.jetstream().DeleteConsumer(t.Context(), intentStream, "test"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			q := b.queue()
			c := q.Consumer()
			ask(t, q, "a1")
			require.NoError(t, receive(t, c, 1).Ack())
			require.NoError(t, q.nc.Flush())

			lose(t, b, q)
			ask(t, q, "b2")
			for d := receive(t, c, 1); d.ID != "b2"; d = receive(t, c, 1) {
				require.Equal(t, "a1", d.ID, "a new consumer begins at the beginning, which is harmless")
			}
		})
	}
}

// Whoever takes the first job of an id need not look: all there is to know has come with it.
func TestTheFirstWordAboutAnIDTellsAll(t *testing.T) {
	t.Parallel()
	q := newBroker(t).queue()
	c := q.Consumer()
	for try := range 10 { // a machine that is slow may take longer to deliver than a message counts as new
		id := fmt.Sprint("a", try)
		v := ask(t, q, id)
		if d := receive(t, c, 1); d.View != nil {
			require.Equal(t, look(t, q, id), *d.View)
			require.Equal(t, v.Generation(), d.View.Generation())
			return
		}
	}
	require.Fail(t, "none came with a view")
}

func TestAWordAfterWhichThereMayBeMoreToKnowTellsNothing(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		prepare func(*testing.T, *broker, *Queue)
		skip    int // deliveries before the one that counts
	}{
		"something is behind it":       {func(t *testing.T, _ *broker, q *Queue) { ask(t, q, "a1"); ask(t, q, "b2") }, 0},
		"something was before it":      {func(t *testing.T, _ *broker, q *Queue) { ask(t, q, "a1"); revoke(t, q, "a1") }, 1},
		"it has been handed out once":  {func(t *testing.T, _ *broker, q *Queue) { ask(t, q, "a1"); handBack(t, q) }, 0},
		"the outcomes are other ones":  {func(t *testing.T, b *broker, q *Queue) { ask(t, q, "a1"); b.loseOutcomes(t, q) }, 0},
		"it is not what was agreed on": {func(t *testing.T, b *broker, q *Queue) { publishRaw(t, b, q, "a1", "{}") }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			q := b.queue()
			tc.prepare(t, b, q)
			c := q.Consumer()
			for range tc.skip {
				require.NoError(t, receive(t, c, 1).Ack())
			}
			require.Nil(t, receive(t, c, 1).View)
		})
	}
}

// The identity of the streams may be another one since the connection was lost.
func TestAWordOfAnotherConnectionTellsNothing(t *testing.T) {
	t.Parallel()
	q := newBroker(t).queue()
	c := q.Consumer()
	cons, err := c.consumer(t.Context())
	require.NoError(t, err)
	for try := range 10 { // see TestTheFirstWordAboutAnIDTellsAll
		ask(t, q, fmt.Sprint("a", try))
		batch, err := cons.Fetch(1)
		require.NoError(t, err)
		s, err := q.current(t.Context())
		require.NoError(t, err)
		before := *s
		before.reconnects--
		for msg := range batch.Messages() {
			require.Nil(t, c.delivery(msg, time.Now(), &before).View)
			if c.delivery(msg, time.Now(), s).View != nil {
				return
			}
		}
	}
	require.Fail(t, "none came with a view")
}

func TestAMessageThatIsOldOrHasBeenSeenIsNotTheNewest(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, tc := range map[string]struct {
		delivered, pending uint64
		stored             time.Time
		want               bool
	}{
		"new":                               {1, 0, now.Add(-time.Millisecond), true},
		"handed out again":                  {2, 0, now, false},
		"before another":                    {1, 1, now, false},
		"of a consumer that begins anew":    {1, 0, now.Add(-2 * time.Second), false},
		"by a clock that is far from ours":  {1, 0, now.Add(time.Hour), false},
		"by a clock that is nearly as ours": {1, 0, now.Add(100 * time.Millisecond), true},
	} {
		meta := &jetstream.MsgMetadata{NumDelivered: tc.delivered, NumPending: tc.pending, Timestamp: tc.stored}
		require.Equal(t, tc.want, isNewest(meta, now), name)
	}
}

// handBack takes a job and hands it back.
func handBack(t *testing.T, q *Queue) {
	t.Helper()
	require.NoError(t, receive(t, q.Consumer(), 1).Nak(0))
}

// loseOutcomes replaces the stream of outcomes by an empty one.
func (b *broker) loseOutcomes(t *testing.T, q *Queue) {
	t.Helper()
	require.NoError(t, b.jetstream().DeleteStream(t.Context(), outcomeStream))
	q.forget(q.streams)
	look(t, q, "a1")
}

func publishRaw(t *testing.T, b *broker, q *Queue, id, body string) {
	t.Helper()
	look(t, q, id)
	_, err := b.jetstream().Publish(t.Context(), q.subject(intentRoot, id), []byte(body))
	require.NoError(t, err)
}
