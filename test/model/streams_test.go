package model_test

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/trace"

	"sandbox-provisioner/internal/jobs"
	"sandbox-provisioner/internal/sandbox"
)

// streams are the two streams of one id, as JetStream keeps them.
type streams struct {
	s        *scheduler
	identity int64
	intents  []jobs.Intent // Intents[i] has the sequence number first+i
	first    uint64
	last     uint64 // sequence number of the newest intent ever
	outcome  *jobs.Outcome
	// outcomeIdentity is that of the stream of outcomes.
	outcomeIdentity int64
	// outcomeSeq is the position of the stored outcome, 0 when there is none; outcomes counts all that were ever stored.
	outcomeSeq, outcomes uint64

	queue []*message
	// accepted is every intent that was ever stored, in order, also those of streams that were lost.
	accepted []accepted
	faults   faults
}

// accepted is an intent in the order of all.
type accepted struct {
	jobs.Intent
	stream int64
	seq    uint64
}

// A message is the word that an intent was stored. It is in the queue until it is acknowledged.
type message struct {
	seq      uint64
	attempts int
	holder   *workerRun // who is working on it
	done     bool
}

func newStreams(s *scheduler, f faults) *streams {
	return &streams{s: s, identity: 1000, outcomeIdentity: 1, first: 1, faults: f}
}

// position is the place of an intent in the order of all, 0 when it is unknown.
func (st *streams) position(stream int64, seq uint64) int {
	for i, a := range st.accepted {
		if a.stream == stream && a.seq == seq {
			return i + 1
		}
	}
	return 0
}

func (st *streams) view(id string) jobs.View {
	v := st.unseen(id)
	v.OutcomeSeq = st.outcomeSeq
	if len(st.intents) > 0 {
		in := st.intents[len(st.intents)-1]
		v.Seq, v.Intent = st.last, &in
	}
	if st.outcome != nil && st.outcome.Generation.Stream == st.identity {
		o := *st.outcome
		v.Outcome = &o
	}
	return v
}

// told is what a message tells of its id by itself, if that is all there is to say.
func (st *streams) told(m *message) *jobs.View {
	if m.attempts > 1 || m.seq != st.last || len(st.intents) == 0 {
		return nil
	}
	in := st.intents[len(st.intents)-1]
	return jobs.FirstView(st.unseen(id), m.seq, &in, trace.SpanContext{})
}

// unseen is all that a process knows of the streams without reading them.
func (st *streams) unseen(id string) jobs.View {
	return jobs.View{ID: id, Stream: st.identity, OutcomeStream: st.outcomeIdentity}
}

// client is one process' access to the streams.
type client struct {
	st    *streams
	actor string
}

func unavailable() error { return fmt.Errorf("%w: %w", jobs.ErrUnavailable, errLost) }

func (c client) Look(ctx context.Context, id string) (jobs.View, error) {
	v, err := c.st.s.await(ctx, c.actor, "look", nil)
	if err != nil || v != proceed {
		return jobs.View{}, unavailable()
	}
	return c.st.view(id), nil
}

func (c client) Newest(ctx context.Context, id string) (sandbox.Generation, error) {
	v, err := c.Look(ctx, id)
	return v.Generation(), err
}

// Unseen is no exchange.
func (c client) Unseen(id string) (jobs.View, bool) { return c.st.unseen(id), c.st.s.choose(4) > 0 }

func (c client) Publish(ctx context.Context, v jobs.View, in jobs.Intent) (jobs.View, error) {
	how, err := c.st.s.await(ctx, c.actor, "publish", nil)
	switch {
	case err != nil || how == loseCall:
		return jobs.View{}, unavailable()
	case v.Stream != c.st.identity || v.Seq != c.st.view(v.ID).Seq:
		c.st.s.note("%-10s %s refused: the view no longer holds", c.actor, in.Op)
		return jobs.View{}, jobs.ErrConflict
	}
	c.st.append(in)
	c.st.s.note("%-10s publishes %s as %d, fence %d", c.actor, in.Op, c.st.last, in.Fence)
	if how == loseBack {
		return jobs.View{}, unavailable()
	}
	v.Seq, v.Intent = c.st.last, &in
	return v, nil
}

func (st *streams) append(in jobs.Intent) {
	st.last++
	if len(st.intents) == 0 {
		st.first = st.last
	}
	st.intents = append(st.intents, in)
	st.accepted = append(st.accepted, accepted{in, st.identity, st.last})
	st.queue = append(st.queue, &message{seq: st.last})
}

func (c client) Record(ctx context.Context, v jobs.View, o jobs.Outcome) (jobs.View, error) {
	how, err := c.st.s.await(ctx, c.actor, "record", nil)
	switch {
	case err != nil || how == loseCall:
		return jobs.View{}, unavailable()
	case v.OutcomeSeq != c.st.outcomeSeq:
		c.st.s.note("%-10s outcome of %d refused", c.actor, o.Generation.Seq)
		return jobs.View{}, jobs.ErrConflict
	}
	c.st.outcomes++
	c.st.outcome, c.st.outcomeSeq = &o, c.st.outcomes
	c.st.s.note("%-10s records %d: %s %s %s, undoing %v", c.actor, o.Generation.Seq, o.Op, o.State, o.Reason, o.Undoing)
	if how == loseBack {
		return jobs.View{}, unavailable()
	}
	v.Outcome, v.OutcomeSeq = &o, c.st.outcomes
	return v, nil
}

func (c client) Follow(string) jobs.Follower { return &follower{client: c, seen: c.st.outcomeSeq} }

// A follower sees each stored outcome, or, after time has passed, what is there.
type follower struct {
	client
	seen uint64
}

func (f *follower) Close() {}

func (f *follower) Next(ctx context.Context, stream int64) (*jobs.Outcome, error) {
	st := f.st
	// An announcement, or a poll, which comes when nothing else happens.
	poll := time.Now().Add(time.Second)
	_, err := st.s.await(ctx, f.actor, "wait for an outcome", func() bool {
		return f.seen != st.outcomeSeq || st.identity != stream || !time.Now().Before(poll)
	})
	if err != nil {
		return nil, err
	}
	f.seen = st.outcomeSeq
	if st.identity != stream {
		return nil, jobs.ErrConflict
	}
	return st.view("").Outcome, nil
}

// loseIntents is NATS coming back without the stream of intents, and perhaps without that of outcomes.
func (st *streams) loseIntents(outcomesToo bool) {
	st.identity += 1000
	st.intents, st.queue, st.first, st.last = nil, nil, 1, 0
	if outcomesToo {
		st.loseOutcomes()
	}
}

func (st *streams) loseOutcomes() {
	st.outcomeIdentity++
	st.outcome, st.outcomeSeq, st.outcomes = nil, 0, 0
}

// expire is an hour in which nothing happens: the intents are forgotten, and perhaps the outcome too, which is younger.
func (st *streams) expire(outcomeToo bool) {
	st.intents, st.first = nil, st.last+1
	if outcomeToo {
		st.outcome, st.outcomeSeq = nil, 0
	}
}
