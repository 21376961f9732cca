package worker

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"sandbox-provisioner/internal/jobs"
	"sandbox-provisioner/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// A journal is what happened, in its order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) read() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string(nil), j.lines...)
}

// memory keeps the intents and the outcome of one id as the streams do: an outcome is refused when another one has been
// stored since its view was read.
type memory struct {
	journal *journal

	mu   sync.Mutex
	view jobs.View
	// beforeRecord is asked before an outcome is stored.
	beforeRecord func(jobs.Outcome) error
	// afterLook is told how many looks there have been.
	afterLook func(n int) error
	looks     int
}

const stream = 100

func newMemory(j *journal) *memory {
	return &memory{journal: j, view: jobs.View{ID: "a1", Stream: stream}}
}

func (m *memory) Look(ctx context.Context, id string) (jobs.View, error) {
	m.mu.Lock()
	m.looks++
	n, v, hook := m.looks, m.view, m.afterLook
	m.mu.Unlock()
	if id != v.ID {
		return jobs.View{ID: id, Stream: stream}, ctx.Err()
	}
	if hook != nil {
		if err := hook(n); err != nil {
			return jobs.View{}, err
		}
	}
	return v, ctx.Err()
}

func (m *memory) Newest(ctx context.Context, id string) (sandbox.Generation, error) {
	v, err := m.Look(ctx, id)
	return v.Generation(), err
}

func (m *memory) Record(ctx context.Context, v jobs.View, o jobs.Outcome) (jobs.View, error) {
	m.mu.Lock()
	hook := m.beforeRecord
	m.mu.Unlock()
	if hook != nil {
		if err := hook(o); err != nil {
			return jobs.View{}, err
		}
	}
	if err := ctx.Err(); err != nil {
		return jobs.View{}, err
	}
	return m.store(v, o)
}

func (m *memory) store(v jobs.View, o jobs.Outcome) (jobs.View, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v.OutcomeSeq != m.view.OutcomeSeq {
		m.journal.note("conflict")
		return jobs.View{}, jobs.ErrConflict
	}
	m.view.Outcome = &o
	m.view.OutcomeSeq++
	undoing := ""
	if o.Undoing {
		undoing = ", undoing"
	}
	m.journal.note("record %s of %d%s", o.State, o.Generation.Seq, undoing)
	v.Outcome, v.OutcomeSeq = &o, m.view.OutcomeSeq
	return v, nil
}

func (m *memory) Publish(ctx context.Context, v jobs.View, in jobs.Intent) (jobs.View, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v.Seq != m.view.Seq {
		return jobs.View{}, jobs.ErrConflict
	}
	m.view.Seq++
	m.view.Intent, m.view.Malformed = &in, nil
	m.journal.note("publish %s", in.Op)
	return m.view, ctx.Err()
}

// publish appends what next makes of the last view.
func (m *memory) publish(next func(jobs.View) jobs.Intent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	in := next(m.view)
	m.view.Seq++
	m.view.Intent, m.view.Malformed = &in, nil
}

func (m *memory) create() {
	m.publish(func(v jobs.View) jobs.Intent {
		return v.Create(sandbox.Spec{ThreadID: "t", UserID: "u"}, fmt.Sprint("r", v.Seq), time.Now(), 15*time.Minute)
	})
}

func (m *memory) delete() {
	m.publish(func(v jobs.View) jobs.Intent { return v.Delete(fmt.Sprint("r", v.Seq), time.Now()) })
}

// garble appends a message that is no intent.
func (m *memory) garble() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.view.Seq++
	m.view.Intent, m.view.Malformed = nil, fmt.Errorf("not an intent")
}

// outcome is the record of the newest job.
func (m *memory) outcome() *jobs.Outcome {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view.Outcome
}

func (m *memory) last() jobs.View {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view
}

// A scripted cluster does what it is told to.
type scripted struct {
	journal *journal

	mu     sync.Mutex
	ensure func(ctx context.Context, l sandbox.Lineage) error
	remove func(ctx context.Context, l sandbox.Lineage) error
	undo   func(ctx context.Context, l sandbox.Lineage) error
	// finds is the position of the intent whose Pod exists already; 0 lets the Pod be made.
	finds uint64
}

func (c *scripted) call(ctx context.Context, what string, l sandbox.Lineage, do func(context.Context, sandbox.Lineage) error) error {
	c.journal.note("%s %d", what, l.Generation.Seq)
	if do == nil {
		return ctx.Err()
	}
	return do(ctx, l)
}

func (c *scripted) Ensure(ctx context.Context, id string, _ sandbox.Spec, l sandbox.Lineage) (sandbox.State, error) {
	c.mu.Lock()
	do := c.ensure
	c.mu.Unlock()
	if err := c.call(ctx, "ensure", l, do); err != nil {
		return sandbox.State{}, err
	}
	seq := cmp.Or(c.finds, l.Generation.Seq)
	return sandbox.State{ID: id, Status: sandbox.Running, PodUID: fmt.Sprint("pod-", seq), Generation: seq}, nil
}

func (c *scripted) Remove(ctx context.Context, _ string, l sandbox.Lineage) error {
	return c.call(ctx, "remove", l, c.remove)
}

func (c *scripted) Undo(ctx context.Context, _ string, l sandbox.Lineage) error {
	return c.call(ctx, "undo", l, c.undo)
}

// A fixture is a Reconciler on doubles.
type fixture struct {
	*Reconciler
	*journal
	records *memory
	cluster *scripted
	made    *register
}

func newFixture() *fixture {
	j := &journal{}
	f := &fixture{journal: j, records: newMemory(j), cluster: &scripted{journal: j}, made: &register{}}
	f.Reconciler = NewReconciler(f.records, f.cluster, NewMetrics(nil), f.made)
	return f
}

// fails answers the nth call with the nth error, and the rest with the last one.
func fails(errs ...error) func(context.Context, sandbox.Lineage) error {
	n := 0
	var mu sync.Mutex
	return func(context.Context, sandbox.Lineage) error {
		mu.Lock()
		defer mu.Unlock()
		err := errs[min(n, len(errs)-1)]
		n++
		return err
	}
}

func retry(reason sandbox.Reason, after time.Duration) *sandbox.Retry {
	return &sandbox.Retry{Reason: reason, Object: sandbox.Pod, After: after, Err: fmt.Errorf("for now: %s", reason)}
}

func failure(reason sandbox.Reason) *sandbox.Failure {
	return &sandbox.Failure{Reason: reason, Object: sandbox.Pod, Message: fmt.Sprintf("for good: %s", reason)}
}

// during runs do within the first call.
func during(do func()) func(context.Context, sandbox.Lineage) error {
	var once sync.Once
	return func(context.Context, sandbox.Lineage) error {
		once.Do(do)
		return nil
	}
}

func requireEvents(t *testing.T, f *fixture, want ...string) {
	t.Helper()
	require.Equal(t, want, f.read())
}

// A register is a Census that keeps what it is told.
type register struct {
	mu   sync.Mutex
	made []string
}

func (r *register) Made(podUID string, _ time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made = append(r.made, podUID)
}
