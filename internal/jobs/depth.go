package jobs

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A Depth is what the workers of a cluster still have to do.
type Depth struct {
	// Waiting are the jobs that no worker has been given yet.
	Waiting uint64
	// Unacknowledged are those that one works on, or that wait to be tried again.
	Unacknowledged int
	// Redelivered are those of them that were given to a worker more than once.
	Redelivered int
	// Oldest is when the first of all these was accepted; zero when there is none.
	Oldest time.Time
}

// Depth asks NATS, so that it is known when no worker is left.
func (q *Queue) Depth(ctx context.Context) (Depth, error) {
	info, err := q.consumerInfo(ctx)
	if err != nil {
		return Depth{}, err
	}
	d := Depth{Waiting: info.NumPending, Unacknowledged: info.NumAckPending, Redelivered: info.NumRedelivered}
	if info.Name == "" {
		if d.Waiting, err = q.stored(ctx); err != nil {
			return Depth{}, err
		}
	}
	if d.Waiting == 0 && d.Unacknowledged == 0 {
		return d, nil
	}
	msg, err := q.from(ctx, info.AckFloor.Stream+1)
	if err != nil || msg == nil {
		return d, err
	}
	d.Oldest = msg.Time
	if in, err := decodeIntent(msg.Data, idOf(msg.Subject)); err == nil {
		d.Oldest = in.AcceptedAt // a job that was renewed is older than its message
	}
	return d, nil
}

// stored is how many intents there are. As long as no worker has ever looked, all of them wait.
func (q *Queue) stored(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, q.cfg.Timeout)
	defer cancel()
	s, err := q.current(ctx)
	if err != nil {
		return 0, unavailable(err)
	}
	info, err := s.intents.Info(ctx, jetstream.WithSubjectFilter(q.subject(intentRoot, "*")))
	if err != nil {
		return 0, unavailable(err)
	}
	var n uint64
	for _, messages := range info.State.Subjects {
		n += messages
	}
	return n, nil
}
