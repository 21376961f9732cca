package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"sandbox-provisioner/internal/jobs"
	"sandbox-provisioner/internal/k8s"
	"sandbox-provisioner/internal/sandbox"
)

// Jobs is where intents are published and outcomes appear.
type Jobs interface {
	Look(ctx context.Context, id string) (jobs.View, error)
	Newest(ctx context.Context, id string) (sandbox.Generation, error)
	Unseen(id string) (v jobs.View, ok bool)
	Publish(ctx context.Context, v jobs.View, in jobs.Intent) (jobs.View, error)
	Follow(id string) jobs.Follower
}

// Cluster is read live, and never written.
type Cluster interface {
	Get(ctx context.Context, id string) (k8s.Sighting, error)
	Check(ctx context.Context, id string, spec sandbox.Spec, l sandbox.Lineage) (*sandbox.State, error)
	Gone(ctx context.Context, id string, l sandbox.Lineage) (bool, error)
	PodUID(ctx context.Context, id string) (string, error)
	List(ctx context.Context) ([]k8s.Sighting, error)
	// Explain adds why a sandbox is not ready, if its Pod does not say so itself.
	Explain(ctx context.Context, st sandbox.State) sandbox.State
}

// A Provisioner turns requests into intents, waits for their outcomes, and reads the cluster. It holds no state.
type Provisioner struct {
	jobs    Jobs
	cluster Cluster
	// url is the address of a sandbox that can be known before its Service exists; it returns "" where it cannot.
	url      func(id string) string
	deadline time.Duration
	patience time.Duration
	metrics  *Metrics
	now      func() time.Time
}

// NewProvisioner returns a Provisioner.
func NewProvisioner(queue Jobs, cluster Cluster, settings k8s.Settings, cfg jobs.Config, metrics *Metrics) *Provisioner {
	return &Provisioner{
		jobs: queue, cluster: cluster, metrics: metrics, now: time.Now, deadline: cfg.Deadline,
		// After two deliveries an outcome should be there.
		patience: 2 * cfg.AckWait,
		url:      func(id string) string { return settings.URL(id, 0) },
	}
}

var (
	// errDeleted ends a create whose sandbox somebody else deleted meanwhile.
	errDeleted = errors.New("sandbox was deleted while being created")
	// errPending says that the request is safe in the queue, and not carried out yet.
	errPending = errors.New("accepted, not carried out yet")
	// errOvertaken says that the outcome to wait for is another one by now.
	errOvertaken = errors.New("overtaken by another request")
)

// A troubleError is errPending of a request that has been tried and did not work yet.
type troubleError struct {
	reason  sandbox.Reason
	message string
}

func (e *troubleError) Error() string { return e.message }

func (e *troubleError) Is(target error) bool { return target == errPending }

// An Order is a request for a sandbox.
type Order struct {
	ID   string
	Spec sandbox.Spec
	// Wait is how long to wait for the sandbox to exist.
	Wait time.Duration
	// Async asks for no more than acceptance: trouble with the cluster is the worker's.
	Async bool
}

// Create sees to it that a sandbox exists, and returns it as Kubernetes does, or errPending when that takes longer than
// the order waits. Other errors: *sandbox.Failure, errDeleted, jobs.ErrUnavailable, and those of the cluster.
func (p *Provisioner) Create(ctx context.Context, order Order) (sandbox.State, error) {
	follower := p.jobs.Follow(order.ID) // before the publish, so that no outcome is missed
	defer follower.Close()
	budget, cancel := context.WithTimeout(ctx, order.Wait)
	defer cancel()
	for {
		v, found, err := p.requestCreate(ctx, order)
		switch {
		case err != nil:
			return sandbox.State{}, err
		case found != nil:
			return *found, nil
		}
		state, err := awaitCreate(budget, follower, v, order.Spec)
		if !errors.Is(err, errOvertaken) || budget.Err() != nil {
			return state, err
		}
	}
}

// asyncCheck bounds the look at the cluster of somebody who does not want to wait.
const asyncCheck = time.Second

// requestCreate returns the view whose last intent will bring the sandbox about, or the sandbox when it is there already.
func (p *Provisioner) requestCreate(ctx context.Context, order Order) (jobs.View, *sandbox.State, error) {
	var found *sandbox.State
	requestID := uuid.NewString()
	v, err := p.request(ctx, jobs.Present, order.ID,
		func(v jobs.View) jobs.Intent { return v.Create(order.Spec, requestID, p.now(), p.deadline) },
		func(v jobs.View) (done bool, err error) {
			if v.Living() {
				found, err = p.check(ctx, order, v)
			}
			return found != nil, err
		})
	return v, found, err
}

// check looks for a sandbox that serves the order, for which the queue alone would have said so at v.
func (p *Provisioner) check(ctx context.Context, order Order, v jobs.View) (*sandbox.State, error) {
	checkCtx := ctx
	if order.Async {
		var cancel func()
		checkCtx, cancel = context.WithTimeout(ctx, asyncCheck)
		defer cancel()
	}
	state, err := p.cluster.Check(checkCtx, order.ID, order.Spec, v.Lineage())
	var retry *sandbox.Retry
	if order.Async && errors.As(err, &retry) {
		return nil, nil // the worker will see
	}
	if err != nil || state == nil {
		return nil, err
	}
	// A delete that slipped in between would kill what is promised here.
	newest, err := p.jobs.Newest(ctx, order.ID)
	if err != nil || newest != v.Generation() {
		return nil, err
	}
	return state, nil
}

// lookBack bounds the look for an intent whose publish was not answered: whoever asked has waited for NATS_TIMEOUT already.
const lookBack = 400 * time.Millisecond

// find looks for an intent whose publish ended with unavailable, which is returned when it was not appended.
func (p *Provisioner) find(ctx context.Context, in jobs.Intent, unavailable error) (jobs.View, error) {
	ctx, cancel := context.WithTimeout(ctx, lookBack)
	defer cancel()
	v, err := p.jobs.Look(ctx, in.SandboxID)
	switch {
	case err != nil:
		return jobs.View{}, errors.Join(unavailable, err)
	case !v.Serves(in, p.now(), p.patience):
		return jobs.View{}, unavailable
	}
	return v, nil
}

// join tells what has become of in, whose purpose the last intent of v serves.
func join(ctx context.Context, v jobs.View, in jobs.Intent) (result string) {
	if v.Intent.RequestID == in.RequestID {
		return publishedNew // only its acknowledgement was lost
	}
	if v.Origin.IsValid() {
		// What is waited for goes on in the trace of whoever asked for it.
		trace.SpanFromContext(ctx).AddLink(trace.Link{SpanContext: v.Origin})
	}
	return publishedJoined
}

// request appends an intent to those of id, unless the last one serves as well, or look finds that nothing is left to do.
func (p *Provisioner) request(
	ctx context.Context, op jobs.Op, id string, next func(jobs.View) jobs.Intent, look func(jobs.View) (done bool, err error),
) (jobs.View, error) {
	result := publishedError
	defer func() { p.metrics.decided(op, result) }()
	missed := false
	// Most creates are of new ids. For the others the publish is refused, and nothing has been lost but that.
	for guess := op == jobs.Present; ; guess = false {
		var v jobs.View
		if guess {
			v, guess = p.jobs.Unseen(id)
		}
		if !guess {
			var err error
			if v, err = p.jobs.Look(ctx, id); err != nil {
				return jobs.View{}, err
			}
		}
		in := next(v)
		if v.Serves(in, p.now(), p.patience) {
			result = join(ctx, v, in)
			return v, nil
		}
		if done, err := look(v); done || err != nil {
			result = decision(err)
			return v, err
		}
		start := time.Now()
		published, err := p.jobs.Publish(ctx, v, in)
		switch {
		case err == nil:
			result = publishedNew
			p.metrics.publishedIn(op, time.Since(start))
			return published, nil
		case errors.Is(err, jobs.ErrConflict):
			if !guess {
				p.metrics.decided(op, publishedConflict)
			}
		case errors.Is(err, jobs.ErrMissing) && !missed:
			missed = true // the look that follows makes the stream, and if that does not help, nothing will
		case errors.Is(err, jobs.ErrUnavailable): // it may have been appended all the same
			if v, err = p.find(ctx, in, err); err == nil {
				result = join(ctx, v, in)
			}
			return v, err
		default:
			return jobs.View{}, err
		}
	}
}

// awaitCreate waits for the outcome of the last intent of v.
func awaitCreate(
	ctx context.Context, follower jobs.Follower, v jobs.View, spec sandbox.Spec,
) (sandbox.State, error) {
	pending := errPending
	for o := v.Outcome; ; {
		state, err := judgeCreate(v, o, spec)
		if state != nil || (err != nil && !errors.Is(err, errPending)) {
			return deref(state), err
		}
		if failure := new(sandbox.Failure); errors.As(err, &failure) {
			pending = failure // it has failed; only its remains are not gone yet
		}
		if o != nil && o.Generation.Seq == v.Seq && o.State == jobs.Retrying {
			pending = &troubleError{o.Reason, o.Message}
		}
		if o, err = follower.Next(ctx, v.Stream); err != nil {
			return sandbox.State{}, giveUp(err, pending)
		}
	}
}

// judgeCreate says what an outcome means to somebody who waits for the last intent of v. It returns neither state nor
// error, or an error that is errPending, while he has to go on waiting.
func judgeCreate(v jobs.View, o *jobs.Outcome, spec sandbox.Spec) (*sandbox.State, error) {
	if o == nil || o.Generation.Seq < v.Seq {
		return nil, nil
	}
	overtaken := o.Generation.Seq > v.Seq
	switch {
	case overtaken && o.Op == jobs.Absent:
		return nil, errDeleted
	case o.State == jobs.Succeeded && o.Sandbox != nil:
		if overtaken && (o.Sandbox.Capacity < spec.MaxShellSessions || (spec.LarkBroker && !o.Sandbox.Broker)) {
			return nil, errOvertaken // by a request for something else
		}
		return o.Sandbox, nil
	case o.State == jobs.Failed && overtaken:
		return nil, errOvertaken
	case o.State == jobs.Failed:
		failure := &sandbox.Failure{Reason: o.Reason, Message: o.Message, Object: o.Object}
		if o.Undoing {
			return nil, fmt.Errorf("%w: %w", errPending, failure)
		}
		return nil, failure
	}
	return nil, nil
}

func deref(s *sandbox.State) sandbox.State {
	if s == nil {
		return sandbox.State{}
	}
	return *s
}

// A partialError is a delete that was accepted and is not complete yet; it goes on.
type partialError struct{ message string }

func (e *partialError) Error() string { return "Partial cleanup: " + e.message }

// giveUp is what a waiter returns when he can wait no longer: errOvertaken when the queue has been lost with his request.
func giveUp(err, pending error) error {
	if errors.Is(err, jobs.ErrConflict) {
		return errOvertaken
	}
	return pending
}

// Delete sees to it that a sandbox goes, and returns when Kubernetes has accepted the deletions. It waits for at most wait,
// and then returns errPending when it has heard of no trouble, a *partialError when it has.
func (p *Provisioner) Delete(ctx context.Context, id string, wait time.Duration) error {
	follower := p.jobs.Follow(id)
	defer follower.Close()
	budget, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		requestID := uuid.NewString()
		v, err := p.request(ctx, jobs.Absent, id,
			func(v jobs.View) jobs.Intent { return v.Delete(requestID, p.now()) },
			func(jobs.View) (done bool, err error) { return false, nil })
		if err != nil {
			return err
		}
		if err := p.awaitDelete(budget, follower, v); !errors.Is(err, errOvertaken) || budget.Err() != nil {
			return err
		}
	}
}

// awaitDelete waits for the outcome of the last intent of v.
func (p *Provisioner) awaitDelete(ctx context.Context, follower jobs.Follower, v jobs.View) error {
	pending := errPending
	for o := v.Outcome; ; {
		switch {
		case o == nil:
		case o.Generation.Seq >= v.Seq && o.State == jobs.Succeeded:
			return nil
		case o.Generation.Seq > v.Seq:
			// A later create is under way, or has failed. What it makes is not ours to wait for; what was before us is.
			if gone, err := p.cluster.Gone(ctx, v.ID, v.Lineage()); err == nil && gone {
				return nil
			}
		case o.Generation.Seq == v.Seq && o.State == jobs.Retrying:
			pending = &partialError{o.Message}
		}
		var err error
		if o, err = follower.Next(ctx, v.Stream); err != nil {
			return giveUp(err, pending)
		}
	}
}

// jobLookTimeout bounds the look at the queue that a status read takes when the cluster has nothing.
const jobLookTimeout = 500 * time.Millisecond

// A Found is what a status read found.
type Found struct {
	Sandbox sandbox.State
	// Exists is false when the id is to be reported as not found.
	Exists bool
	// Job is the view of the newest create, when the cluster alone does not tell all.
	Job *jobs.View
}

// Get reads a sandbox. An error never means absence.
func (p *Provisioner) Get(ctx context.Context, id string) (Found, error) {
	seen, err := p.cluster.Get(ctx, id)
	if err != nil {
		return Found{}, err
	}
	if seen.Pod && seen.Service && !p.young(seen) {
		return p.explained(ctx, p.found(seen, nil)), nil
	}
	lookCtx, cancel := context.WithTimeout(ctx, jobLookTimeout)
	defer cancel()
	v, lookErr := p.jobs.Look(lookCtx, id)
	switch {
	case lookErr != nil: // the cluster's word stands: it is the only registry of what exists
		return p.explained(ctx, p.found(seen, nil)), nil
	case isOver(v):
		seen = k8s.Sighting{State: sandbox.State{ID: id, Status: sandbox.NotFound}}
	case v.Living() && (!seen.Pod || !seen.Service):
		// It may have been finished after the cluster was read.
		if seen, err = p.cluster.Get(ctx, id); err != nil {
			return Found{}, err
		}
	}
	return p.explained(ctx, p.found(seen, &v)), nil
}

// explained is f with a reason from further away, which a list does not look for: it would be a request for each sandbox.
func (p *Provisioner) explained(ctx context.Context, f Found) Found {
	if f.Exists {
		f.Sandbox = p.cluster.Explain(ctx, f.Sandbox)
	}
	return f
}

// List reads all sandboxes, sorted by id. An error never means absence.
func (p *Provisioner) List(ctx context.Context) ([]sandbox.State, error) {
	all, err := p.cluster.List(ctx)
	if err != nil {
		return nil, err
	}
	over := p.over(ctx, all)
	states := make([]sandbox.State, 0, len(all))
	for i := range all {
		if !over[i] {
			states = append(states, all[i].State)
		}
	}
	return states, nil
}

// maxListLooks bounds the looks at the queue that a list takes.
const maxListLooks = 128

// over tells which of the youngest sandboxes are over.
func (p *Provisioner) over(ctx context.Context, all []k8s.Sighting) []bool {
	over := make([]bool, len(all))
	ctx, cancel := context.WithTimeout(ctx, jobLookTimeout)
	defer cancel()
	var looks errgroup.Group
	looks.SetLimit(16)
	for i, n := 0, 0; i < len(all) && n < maxListLooks; i++ {
		if !p.young(all[i]) {
			continue
		}
		n++
		looks.Go(func() error {
			v, err := p.jobs.Look(ctx, all[i].State.ID)
			over[i] = err == nil && isOver(v)
			return nil
		})
	}
	_ = looks.Wait() // no error: the cluster's word stands
	return over
}

// young tells whether a sandbox may be the work of a create that a delete has overtaken: what was on its way to Kubernetes
// when the delete was answered arrives all the same, and is there until its worker looks again.
func (p *Provisioner) young(seen k8s.Sighting) bool {
	return p.now().Sub(seen.State.CreatedAt) < p.patience
}

// isOver tells whether the last request was a delete that has been carried out, so that nothing of the id counts any more.
func isOver(v jobs.View) bool { return v.Finished() && v.Intent != nil && v.Intent.Op == jobs.Absent }

// found decides what is said of a sandbox, of which the queue says v, or nothing.
func (p *Provisioner) found(seen k8s.Sighting, v *jobs.View) Found {
	f := Found{Sandbox: seen.State, Exists: seen.Service}
	if v != nil && v.Intent != nil && v.Intent.Op == jobs.Present && !v.Living() {
		f.Job = v
	}
	if v != nil && v.Pending() && (!seen.Pod || !seen.Service) {
		f.Sandbox.Status = sandbox.Pending
		if !seen.Service {
			f.Sandbox.URL = p.url(f.Sandbox.ID)
			f.Exists = true
		}
	}
	// A client that adopts what it is told cannot do anything without an address.
	f.Exists = f.Exists && f.Sandbox.URL != ""
	return f
}

// Job returns the view of the newest job of id; its Seq is 0 when none is retained.
func (p *Provisioner) Job(ctx context.Context, id string) (jobs.View, error) {
	return p.jobs.Look(ctx, id)
}
