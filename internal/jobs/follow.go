package jobs

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// pollInterval is how often a follower reads the outcome itself, since an announcement can be lost across a reconnect.
const pollInterval = time.Second

// followers are those who wait for outcomes, by sandbox id.
type followers struct {
	mu sync.Mutex
	by map[string]map[*follower]struct{}
}

// A Follower is told of the outcomes of one id.
type Follower interface {
	// Next blocks until there is something new to judge, and returns it: the outcome that was announced, or after a
	// second of silence what a read finds. stream is the identity of the stream that the waiter's intent is in. It
	// returns nil when a read found nothing, or failed; the error is that of ctx, or ErrConflict when that stream has been
	// lost, and the intent with it.
	Next(ctx context.Context, stream int64) (*Outcome, error)
	// Close ends the listening.
	Close()
}

type follower struct {
	q    *Queue
	id   string
	news chan []byte // holds the newest announcement only
}

// Announce subscribes to the outcomes that NATS stores and hands them to followers, until the returned function is
// called. Without it followers still see every outcome, a second later.
func (q *Queue) Announce() (stop func(), err error) {
	sub, err := q.nc.Subscribe(q.subject(announceRoot, "*"), func(m *nats.Msg) {
		q.hear()
		q.followers.tell(idOf(m.Subject), m.Data)
	})
	if err != nil {
		return nil, fmt.Errorf("subscribe to outcomes: %w", err)
	}
	return func() { _ = sub.Unsubscribe() }, nil
}

// Follow starts to listen for outcomes of id. Call it before the intent is published, so that none is missed.
func (q *Queue) Follow(id string) Follower {
	f := &follower{q: q, id: id, news: make(chan []byte, 1)}
	q.followers.mu.Lock()
	defer q.followers.mu.Unlock()
	if q.followers.by == nil {
		q.followers.by = map[string]map[*follower]struct{}{}
	}
	if q.followers.by[id] == nil {
		q.followers.by[id] = map[*follower]struct{}{}
	}
	q.followers.by[id][f] = struct{}{}
	return f
}

func (f *follower) Close() {
	fs := &f.q.followers
	fs.mu.Lock()
	defer fs.mu.Unlock()
	delete(fs.by[f.id], f)
	if len(fs.by[f.id]) == 0 {
		delete(fs.by, f.id)
	}
}

func (fs *followers) tell(id string, data []byte) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for f := range fs.by[id] {
		select {
		case <-f.news: // an older one that nobody has read
		default:
		}
		f.news <- data
	}
}

func (f *follower) Next(ctx context.Context, stream int64) (*Outcome, error) {
	timer := time.NewTimer(pollInterval)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case data := <-f.news:
		return f.q.decodeOutcome(data, stream), nil
	case <-timer.C:
		v, err := f.q.Look(ctx, f.id)
		if err != nil {
			return nil, ctx.Err()
		}
		if v.Stream != stream {
			return nil, ErrConflict
		}
		return v.Outcome, nil
	}
}
