package jobs

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/trace"
)

const (
	// fetchWait is how long one request for deliveries stays open. A worker that drains waits for it to end, because a
	// delivery to a closed request would lie idle for AckWait.
	fetchWait = 2 * time.Second
	// leaseMargin is what an attempt leaves unused of its AckWait, for clocks and for the way to NATS.
	leaseMargin = time.Second
	// freshness is how old a message may be that nobody is believed to have carried out. A consumer that was lost with its state, or is
	// younger than the stream, begins from the front and takes what has long ended for new.
	freshness = time.Second
	// maxWaiting bounds the open requests of all workers of a cluster.
	maxWaiting = 4096
)

// A Consumer hands out the jobs of one cluster. All workers share one durable consumer on the server.
type Consumer struct {
	q *Queue

	mu   sync.Mutex
	cons jetstream.Consumer
}

// Consumer returns the Consumer of the cluster. It is made on the server when it is first needed.
func (q *Queue) Consumer() *Consumer { return &Consumer{q: q} }

// A Delivery is the word that something about one id is to be looked at. Its own body counts only where View says so.
type Delivery struct {
	ID string
	// Attempt counts the deliveries of this message, from 1.
	Attempt int
	// Until is when NATS may hand the job to somebody else: nothing may be written after it.
	Until time.Time
	// Origin is the span that has published the message; it is not valid when nobody traces.
	Origin trace.SpanContext
	// View is what a look would show, when the message is new, the first about its id, and was the last of all as it was sent; else nil.
	View *View

	msg jetstream.Msg
	c   *Consumer
}

// Fetch asks for up to n deliveries and returns a channel that yields them as they come, and that is closed after at most
// two seconds. It does not obey ctx once the request is sent, so that no delivery is lost; ctx bounds the request.
func (c *Consumer) Fetch(ctx context.Context, n int) (<-chan *Delivery, error) {
	cons, err := c.consumer(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	s, err := c.q.current(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	asked := time.Now()
	// The lease of a job counts from here: a long wait would leave nothing of a short AckWait.
	batch, err := cons.Fetch(n, jetstream.FetchMaxWait(min(fetchWait, c.q.cfg.AckWait/4)))
	if err != nil {
		return nil, unavailable(err)
	}
	out := make(chan *Delivery)
	go func() {
		defer close(out)
		for msg := range batch.Messages() {
			out <- c.delivery(msg, asked, s)
		}
		if batch.Error() != nil {
			c.forget(cons) // it may be gone, with the stream: make sure before the next request
		}
	}()
	return out, nil
}

func (c *Consumer) delivery(msg jetstream.Msg, asked time.Time, s *streams) *Delivery {
	d := &Delivery{ID: idOf(msg.Subject()), Attempt: 1, Origin: carried(msg.Headers()), msg: msg, c: c, Until: c.leaseFrom(asked)}
	meta, err := msg.Metadata()
	if err != nil {
		return d
	}
	d.Attempt = int(min(meta.NumDelivered, 1<<30))
	// Only what has come over the connection on which the streams were looked up is surely theirs.
	if isNewest(meta, time.Now()) && c.q.nc.Stats().Reconnects == s.reconnects {
		if in, err := decodeIntent(msg.Data(), d.ID); err == nil {
			d.View = FirstView(s.unseen(d.ID), meta.Sequence.Stream, in, d.Origin)
		}
	}
	return d
}

// isNewest tells whether a message has just been stored, is handed out for the first time, and had nothing behind it when it was sent.
func isNewest(meta *jetstream.MsgMetadata, now time.Time) bool {
	return meta.NumDelivered == 1 && meta.NumPending == 0 && now.Sub(meta.Timestamp).Abs() < freshness
}

func (c *Consumer) leaseFrom(t time.Time) time.Time {
	return t.Add(c.q.cfg.AckWait - min(leaseMargin, c.q.cfg.AckWait/4))
}

// Extend tells NATS that the job is still being worked on, and returns the new Until once NATS has confirmed it.
func (d *Delivery) Extend(ctx context.Context) (time.Time, error) {
	asked := time.Now()
	ctx, cancel := context.WithTimeout(ctx, d.c.q.cfg.Timeout)
	defer cancel()
	// InProgress of the library does not wait for the confirmation.
	if _, err := d.c.q.nc.RequestWithContext(ctx, d.msg.Reply(), []byte("+WPI")); err != nil {
		return time.Time{}, unavailable(err)
	}
	return d.c.leaseFrom(asked), nil
}

// Ack ends the job. When it is lost the job comes again, and is found finished.
func (d *Delivery) Ack() error { return d.msg.Ack() }

// Nak hands the job back, to come again after delay.
func (d *Delivery) Nak(delay time.Duration) error { return d.msg.NakWithDelay(delay) }

// Term ends a message that can never be carried out.
func (d *Delivery) Term(reason string) error { return d.msg.TermWithReason(reason) }

func (c *Consumer) consumer(ctx context.Context) (jetstream.Consumer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cons != nil {
		return c.cons, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.q.cfg.Timeout)
	defer cancel()
	s, err := c.q.lookUp(ctx)
	if err != nil {
		return nil, err
	}
	c.cons, err = s.intents.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable:       c.q.cfg.Cluster,
		Description:   "workers of cluster " + c.q.cfg.Cluster,
		FilterSubject: c.q.subject(intentRoot, "*"),
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       c.q.cfg.AckWait,
		MaxDeliver:    -1,
		// Delayed jobs count as pending: a limit would let a few stuck ids stop everybody.
		MaxAckPending: -1,
		MaxWaiting:    maxWaiting,
	})
	if err != nil {
		return nil, fmt.Errorf("consumer: %w", err)
	}
	return c.cons, nil
}

func (c *Consumer) forget(cons jetstream.Consumer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cons == cons {
		c.cons = nil
	}
}
