package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"sandbox-provisioner/internal/sandbox"
)

// The streams and the roots of their subjects, "<root>.<cluster>.<sandbox_id>".
const (
	intentStream  = "SANDBOX_JOBS"
	outcomeStream = "SANDBOX_OUTCOMES"

	intentRoot  = "sandbox.jobs"
	outcomeRoot = "sandbox.outcomes"
	// announceRoot is where NATS repeats an outcome after it has stored it. A plain subscription on outcomeRoot would
	// also see the outcomes that the stream refused.
	announceRoot = "sandbox.announced"

	// intentsPerID bounds the intents that are kept of one id.
	intentsPerID = 16
	// outlives is how much longer outcomes are kept, since streams forget when they find the time: an intent without an outcome must be
	// one that has not ended.
	outlives = 10 * time.Second
	// identityAge is how long the identity of the stream of intents is believed while the connection lasts.
	identityAge = 10 * time.Second
	// heardAge is for how long the last word of NATS says that it is there.
	heardAge = 20 * time.Millisecond
)

// ErrConflict says that somebody else wrote first: look again, decide again.
var ErrConflict = errors.New("the view no longer holds")

// ErrMissing is an ErrUnavailable: nobody takes what is published, so that it was surely not stored. A look makes a stream that is missing.
var ErrMissing = errors.New("no stream takes it")

// ErrUnavailable says that NATS did not answer. Whether the write took effect is not known.
var ErrUnavailable = errors.New("NATS is not available")

// A Queue reads and writes the intents and outcomes of one cluster. It is safe for concurrent use, and survives the loss
// of its connection and of its streams.
type Queue struct {
	nc  *nats.Conn
	js  jetstream.JetStream
	cfg Config
	log *slog.Logger

	// heard is when NATS has answered last, by the monotonic clock.
	heard atomic.Pointer[time.Time]

	mu      sync.Mutex
	streams *streams
	// fixed are the streams that NATS does not let us change, with the reconnects at which it did not.
	fixed map[string]uint64

	followers followers
}

// streams are the two streams as they were when they were looked up.
type streams struct {
	intents, outcomes jetstream.Stream
	// identity and outcomeIdentity are the creation times of the two, in Unix nanoseconds.
	identity, outcomeIdentity int64
	reconnects                uint64
	at                        time.Time
}

// New returns a Queue on a connection that need not be up yet. The streams are made when they are first needed.
func New(nc *nats.Conn, cfg Config, log *slog.Logger) (*Queue, error) {
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(cfg.Timeout))
	if err != nil {
		return nil, fmt.Errorf("jetstream: %w", err)
	}
	return &Queue{nc: nc, js: js, cfg: cfg, log: log, fixed: map[string]uint64{}}, nil
}

// Ping tells whether the streams can be reached; it makes them when they are missing.
func (q *Queue) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, q.cfg.Timeout)
	defer cancel()
	_, err := q.lookUp(ctx)
	return unavailable(err)
}

// Unseen is the View of an id that nobody has asked for. It is a guess, for which nothing is read; Publish refuses it when it is
// wrong. ok is false while NATS has not been heard of for a moment: what is sent to a server that is paused or cut off may be stored
// long after it was reported as refused, so that somebody has to look first whether there is one.
func (q *Queue) Unseen(id string) (v View, ok bool) {
	if heard := q.heard.Load(); heard == nil || time.Since(*heard) > heardAge {
		return View{}, false
	}
	s := q.known()
	if s == nil {
		return View{}, false
	}
	return s.unseen(id), true
}

func (s *streams) unseen(id string) View {
	return View{ID: id, Stream: s.identity, OutcomeStream: s.outcomeIdentity}
}

// Look reads the last intent and the outcome of id.
func (q *Queue) Look(ctx context.Context, id string) (v View, err error) {
	err = q.read(ctx, func(ctx context.Context, s *streams) (err error) {
		v, err = q.look(ctx, s, id)
		return err
	})
	return v, err
}

// Newest reads the generation of the last intent of id; its Seq is 0 when there is none.
func (q *Queue) Newest(ctx context.Context, id string) (g sandbox.Generation, err error) {
	err = q.read(ctx, func(ctx context.Context, s *streams) error {
		g = sandbox.Generation{Stream: s.identity}
		msg, err := last(ctx, s.intents, q.subject(intentRoot, id))
		if msg != nil {
			g.Seq = msg.Sequence
		}
		return err
	})
	return g, err
}

// read has something read of streams whose identity is known.
func (q *Queue) read(ctx context.Context, from func(context.Context, *streams) error) error {
	ctx, cancel := context.WithTimeout(ctx, q.cfg.Timeout)
	defer cancel()
	for {
		s, err := q.current(ctx)
		if err != nil {
			return unavailable(err)
		}
		if err = from(ctx, s); err == nil {
			q.hear()
		}
		if isMissing(err) || q.nc.Stats().Reconnects != s.reconnects {
			// The stream may be another one than the one whose identity is known: nothing that was read counts.
			q.forget(s)
			if ctx.Err() == nil && q.nc.IsConnected() {
				continue
			}
			if err == nil {
				err = nats.ErrDisconnected
			}
		}
		return unavailable(err)
	}
}

func (q *Queue) look(ctx context.Context, s *streams, id string) (View, error) {
	v := s.unseen(id)
	var intent, outcome *jetstream.RawStreamMsg
	both, readCtx := errgroup.WithContext(ctx)
	both.Go(func() (err error) {
		intent, err = last(readCtx, s.intents, q.subject(intentRoot, id))
		return err
	})
	both.Go(func() (err error) {
		outcome, err = last(readCtx, s.outcomes, q.subject(outcomeRoot, id))
		return err
	})
	err := both.Wait()
	if err != nil {
		return View{}, err
	}
	if outcome != nil {
		v.OutcomeSeq = outcome.Sequence
		v.Outcome = q.decodeOutcome(outcome.Data, s.identity)
	}
	if v.Outcome != nil && (intent == nil || v.Outcome.Generation.Seq > intent.Sequence) {
		// A newer intent, which the outcome is about, may have come between the two reads. A record about the older one must
		// not take the place of that outcome.
		if intent, err = last(ctx, s.intents, q.subject(intentRoot, id)); err != nil {
			return View{}, err
		}
	}
	if intent != nil {
		v.Seq = intent.Sequence
		v.Origin = carried(intent.Header)
		v.Intent, v.Malformed = decodeIntent(intent.Data, id)
	}
	return v, nil
}

// last is the newest message of a subject, nil when there is none.
func last(ctx context.Context, s jetstream.Stream, subject string) (*jetstream.RawStreamMsg, error) {
	msg, err := s.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	return msg, err
}

// decodeOutcome reads an outcome about the intents of the given stream; nil when it is about those of another one.
func (q *Queue) decodeOutcome(data []byte, stream int64) *Outcome {
	var o Outcome
	if err := json.Unmarshal(data, &o); err != nil {
		q.log.Warn("an outcome cannot be read and is ignored", slog.String(keyError, err.Error()))
		return nil
	}
	if o.Generation.Stream != stream {
		return nil
	}
	return &o
}

// Publish appends in as the successor of the last intent of v, durably, and returns the View of it. ErrConflict: v no
// longer holds. ErrUnavailable: look again, and find out by RequestID whether it was appended; it was not if it is an ErrMissing.
func (q *Queue) Publish(ctx context.Context, v View, in Intent) (View, error) {
	ctx, cancel := context.WithTimeout(ctx, q.cfg.Timeout)
	defer cancel()
	s, err := q.current(ctx)
	if err != nil {
		return View{}, unavailable(err)
	}
	if s.identity != v.Stream {
		return View{}, ErrConflict
	}
	ctx, span := startWrite(ctx, intentRoot, v.ID)
	seq, err := q.write(ctx, intentRoot, v.ID, in, v.Seq)
	endWrite(span, err)
	if isMissing(err) {
		q.forget(s)
		return View{}, fmt.Errorf("%w: %w", ErrMissing, err)
	}
	if err != nil {
		return View{}, err
	}
	if q.nc.Stats().Reconnects != s.reconnects {
		// The intent is stored, but perhaps in another stream. It is found by its RequestID.
		return View{}, ErrConflict
	}
	v.Seq, v.Intent, v.Malformed, v.Origin = seq, &in, nil, span.SpanContext()
	return v, nil
}

// Record stores o in place of the outcome of v, and returns the View with it. ErrConflict: somebody else recorded
// something since v was read, or the stream of v has been lost.
func (q *Queue) Record(ctx context.Context, v View, o Outcome) (View, error) {
	ctx, cancel := context.WithTimeout(ctx, q.cfg.Timeout)
	defer cancel()
	s, err := q.current(ctx)
	if err != nil {
		return View{}, unavailable(err)
	}
	if s.identity != v.Stream {
		return View{}, ErrConflict
	}
	ctx, span := startWrite(ctx, outcomeRoot, v.ID)
	seq, err := q.write(ctx, outcomeRoot, v.ID, o, v.OutcomeSeq)
	endWrite(span, err)
	if err != nil {
		return View{}, err
	}
	v.Outcome, v.OutcomeSeq = &o, seq
	return v, nil
}

// write appends body to the subject of id, expecting seq as the position of the subject's last message.
func (q *Queue) write(ctx context.Context, root, id string, body any, seq uint64) (uint64, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return 0, fmt.Errorf("encode: %w", err)
	}
	msg := nats.NewMsg(q.subject(root, id))
	msg.Data = data
	carry(ctx, msg)
	ack, err := q.js.PublishMsg(ctx, msg,
		jetstream.WithExpectLastSequencePerSubject(seq), jetstream.WithRetryAttempts(0))
	if err != nil {
		return 0, writeError(err)
	}
	q.hear()
	return ack.Sequence, nil
}

func writeError(err error) error {
	var api *jetstream.APIError
	if errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant) {
		return ErrConflict
	}
	return unavailable(err)
}

// unavailable marks an error of NATS as such.
func unavailable(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// isMissing tells whether an operation failed because its stream is not there.
func isMissing(err error) bool {
	return errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, nats.ErrNoResponders) ||
		errors.Is(err, jetstream.ErrNoStreamResponse)
}

func (q *Queue) subject(root, id string) string {
	return root + "." + q.cfg.Cluster + "." + id
}

// idOf is the sandbox id at the end of a subject.
func idOf(subject string) string {
	return subject[strings.LastIndexByte(subject, '.')+1:]
}

// current returns the streams, looking them up when the connection is another one than before or long ago.
func (q *Queue) current(ctx context.Context) (*streams, error) {
	if s := q.known(); s != nil {
		return s, nil
	}
	return q.lookUp(ctx)
}

// known is the streams as they were looked up not long ago on this connection, or nil.
func (q *Queue) known() *streams {
	q.mu.Lock()
	s := q.streams
	q.mu.Unlock()
	if s != nil && s.reconnects == q.nc.Stats().Reconnects && time.Since(s.at) < identityAge {
		return s
	}
	return nil
}

// hear notes that NATS is there.
func (q *Queue) hear() { q.heard.Store(new(time.Now())) }

func (q *Queue) forget(s *streams) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.streams == s {
		q.streams = nil
	}
}

func (q *Queue) lookUp(ctx context.Context) (*streams, error) {
	if !q.nc.IsConnected() {
		return nil, nats.ErrDisconnected
	}
	s := &streams{reconnects: q.nc.Stats().Reconnects, at: time.Now()}
	var err error
	if s.intents, err = q.stream(ctx, q.intentConfig()); err != nil {
		return nil, err
	}
	if s.outcomes, err = q.stream(ctx, q.outcomeConfig()); err != nil {
		return nil, err
	}
	// Outcomes first, so that they outlive intents at every moment.
	if s.outcomes, err = q.keep(ctx, s.outcomes, q.cfg.outcomeAge(s.intents.CachedInfo().Config.MaxAge)); err != nil {
		return nil, err
	}
	if s.intents, err = q.keep(ctx, s.intents, q.cfg.Retention); err != nil {
		return nil, err
	}
	s.identity = s.intents.CachedInfo().Created.UnixNano()
	s.outcomeIdentity = s.outcomes.CachedInfo().Created.UnixNano()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.streams = s
	return s, nil
}

// stream looks a stream up and makes it when it is missing. Several processes may do so at once.
func (q *Queue) stream(ctx context.Context, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	s, err := q.js.Stream(ctx, cfg.Name)
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return s, err
	}
	s, err = q.js.CreateStream(ctx, cfg)
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return q.js.Stream(ctx, cfg.Name)
	}
	if err == nil {
		q.log.Info("stream created", slog.String(keyStream, cfg.Name))
	}
	return s, err
}

// keep makes a stream that forgets sooner keep its messages for age; 0 is for ever. It does not shorten what others may count on: all
// clusters of a NATS share the streams. (Of two that lengthen it at once, the later wins until the other looks again.) A stream that NATS
// does not let us change is used as it is, and asked about again on the next connection.
func (q *Queue) keep(ctx context.Context, s jetstream.Stream, age time.Duration) (jetstream.Stream, error) {
	cfg := s.CachedInfo().Config
	reconnects := q.nc.Stats().Reconnects
	if cfg.MaxAge == 0 || age != 0 && cfg.MaxAge >= age || q.isFixed(cfg.Name, reconnects) {
		return s, nil
	}
	cfg.MaxAge = age
	// A client without the right to it is not answered.
	updateCtx, cancel := context.WithTimeout(ctx, q.cfg.Timeout/4)
	defer cancel()
	kept, err := q.js.UpdateStream(updateCtx, cfg)
	switch {
	case err == nil:
		q.log.Info("stream keeps its messages longer from now on", slog.String(keyStream, cfg.Name), slog.Duration(keyMaxAge, age))
		return kept, nil
	case ctx.Err() != nil || !q.nc.IsConnected() || isMissing(err):
		return nil, fmt.Errorf("make %s keep its messages for %s: %w", cfg.Name, age, err)
	}
	q.fix(cfg.Name, reconnects, age, err)
	return s, nil
}

func (q *Queue) isFixed(stream string, reconnects uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	at, known := q.fixed[stream]
	return known && at == reconnects
}

// fix notes that a stream cannot be changed, and tells so the first time.
func (q *Queue) fix(stream string, reconnects uint64, age time.Duration, why error) {
	q.mu.Lock()
	_, told := q.fixed[stream]
	q.fixed[stream] = reconnects
	q.mu.Unlock()
	if !told {
		q.log.Warn("stream cannot be made to keep its messages longer, and is used as it is; grant the right, or change its maximum age by hand",
			slog.String(keyStream, stream), slog.Duration(keyMaxAge, age), slog.String(keyRight, "$JS.API.STREAM.UPDATE."+stream),
			slog.String(keyError, why.Error()))
	}
}

func (q *Queue) intentConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        intentStream,
		Description: "what was asked for, by cluster and sandbox id",
		Subjects:    []string{intentRoot + ".*.*"},
		// Not a work queue: the last intent of an id must stay readable after it is acknowledged.
		Retention:         jetstream.LimitsPolicy,
		MaxAge:            q.cfg.Retention,
		MaxMsgsPerSubject: intentsPerID,
		Storage:           jetstream.FileStorage,
		Replicas:          q.cfg.Replicas,
		// A follower that lags would answer a direct get with a past that the protocol has already left.
		AllowDirect: q.cfg.Replicas == 1,
	}
}

func (q *Queue) outcomeConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              outcomeStream,
		Description:       "what became of the newest job, by cluster and sandbox id",
		Subjects:          []string{outcomeRoot + ".*.*"},
		Retention:         jetstream.LimitsPolicy,
		MaxAge:            q.cfg.outcomeAge(q.cfg.Retention),
		MaxMsgsPerSubject: 1,
		Storage:           jetstream.FileStorage,
		Replicas:          q.cfg.Replicas,
		AllowDirect:       q.cfg.Replicas == 1,
		RePublish:         &jetstream.RePublish{Source: outcomeRoot + ".>", Destination: announceRoot + ".>"},
	}
}
