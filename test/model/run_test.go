package model_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"sandbox-provisioner/internal/api"
	"sandbox-provisioner/internal/jobs"
	"sandbox-provisioner/internal/k8s"
	"sandbox-provisioner/internal/sandbox"
	"sandbox-provisioner/internal/worker"
)

const id = "m"

// faults are the chances, in percent a step, of what can go wrong.
type faults struct {
	lost        int // an exchange that is lost, on the way there or back
	crash       int // a worker dies
	redeliver   int // a message goes to somebody else while its worker still has it
	disturb     int // somebody else touches the cluster
	gone        int // a terminating Pod is gone at last
	streamLost  int // NATS comes back empty
	outcomeLost int // only the outcomes are lost
	apiCrash    int // an api dies while it waits
	expire      int // all is quiet for an hour
	freeze      int // a worker is frozen between its last check and its write, for longer than its lease
	quota       bool
	final       int // of 100 lost calls to Kubernetes, how many are refusals for good
}

// kubernetes is an error that Kubernetes gives in place of doing something.
func (f faults) kubernetes(choose chooser, verb string, gr schema.GroupResource, name string) error {
	if verb == "create" && choose.percent(f.final) {
		return apierrors.NewInvalid(schema.GroupKind{Kind: gr.Resource}, name, nil)
	}
	switch choose(5) {
	case 0:
		return apierrors.NewInternalError(errLost)
	case 1:
		return apierrors.NewTooManyRequests("slow down", 1)
	case 2:
		return apierrors.NewConflict(gr, name, errLost)
	case 3:
		return apierrors.NewGenericServerResponse(http.StatusServiceUnavailable, verb, gr, name, "etcd leader changed", 1, true)
	default:
		return errLost
	}
}

// An answer is what a client was told.
type answer struct {
	uid types.UID // of a create that was answered with 200
	// position is how many intents had been accepted when the answer was decided.
	position int
}

// A run is one life of one id, from the first request until all is quiet.
type run struct {
	*scheduler
	streams *streams
	kube    *kube
	faults  faults

	answers []answer
	deletes []int // positions of answered deletes
	workers []*workerRun
	ghosts  []*workerRun // workers that are frozen
	names   int
	clients int // that still wait
	cancels map[string]context.CancelFunc
	lossy   bool // a stream was lost: what had been accepted before may be gone
	problem string
}

// A workerRun is one worker process. It works on one message at a time.
type workerRun struct {
	name   string
	cancel context.CancelFunc
	held   *message
}

func newRun(choose chooser, f faults) *run {
	s := &scheduler{choose: choose, frozen: map[string]bool{}, lately: map[string]string{}}
	r := &run{scheduler: s, faults: f, cancels: map[string]context.CancelFunc{}}
	r.streams = newStreams(s, f)
	r.kube = &kube{s: s, faults: f, deleted: map[types.UID]int{}, outside: map[types.UID]bool{},
		clock: func() int { return len(r.streams.accepted) }}
	return r
}

var settings = k8s.Settings{
	Namespace: "n", Image: "i", Port: 8080, ServiceType: k8s.ClusterIP, ClusterDomain: "cluster.local",
	BaseDir: "/base", ThreadsPath: "/base/threads", SeccompProfile: "RuntimeDefault",
}

func (r *run) cluster(actor string) *k8s.Cluster {
	return k8s.NewWithClients(r.kube.pods(actor), r.kube.services(actor), settings, time.Hour)
}

// Nobody reads what the programs of the model count.
var (
	apiMetrics    = api.NewMetrics(nil)
	workerMetrics = worker.NewMetrics(nil)
)

// patience of the clients of the model, in the time of the bubble: they wait as long as it takes.
const patience = 100 * time.Hour

// request starts a client. Its answer is judged when all is quiet.
func (r *run) request(ctx context.Context, op jobs.Op, spec sandbox.Spec) {
	r.names++
	r.clients++
	name := fmt.Sprintf("%s-%d", map[jobs.Op]string{jobs.Present: "create", jobs.Absent: "delete"}[op], r.names)
	ctx, cancel := context.WithCancel(ctx)
	r.cancels[name] = cancel
	p := api.NewProvisioner(client{r.streams, name}, r.cluster(name), settings,
		jobs.Config{Deadline: 24 * time.Hour, AckWait: 15 * time.Second}, apiMetrics)
	go func() {
		defer func() { r.clients--; cancel(); delete(r.cancels, name) }()
		if op == jobs.Absent {
			err := p.Delete(ctx, id, patience)
			r.note("%-10s is answered: %v", name, err)
			if err == nil {
				r.deletes = append(r.deletes, len(r.streams.accepted))
			}
			return
		}
		state, err := p.Create(ctx, api.Order{ID: id, Spec: spec, Wait: patience})
		r.note("%-10s is answered: %s %v", name, state.PodUID, err)
		if err == nil {
			r.answers = append(r.answers, answer{types.UID(state.PodUID), r.decided(name)})
		}
	}()
}

// decided is the position of the intent that an answer is about: the newest that had been accepted when it was given, if a look at the
// streams has led to it; if an outcome has, not counting deletes that were accepted after that.
func (r *run) decided(client string) int {
	if r.lately[client] == "look" {
		return len(r.streams.accepted)
	}
	if o := r.streams.outcome; o != nil && o.State == jobs.Succeeded && o.Op == jobs.Present {
		if at := r.streams.position(o.Generation.Stream, o.Generation.Seq); at > 0 {
			return at
		}
	}
	return 0
}

// startWorker starts a process that takes messages until it is killed.
func (r *run) startWorker(ctx context.Context) {
	r.names++
	ctx, cancel := context.WithCancel(ctx)
	w := &workerRun{name: fmt.Sprintf("worker-%d", r.names), cancel: cancel}
	r.workers = append(r.workers, w)
	reconciler := worker.NewReconciler(client{r.streams, w.name}, r.cluster(w.name), workerMetrics, nil)
	go func() {
		defer cancel()
		for {
			if _, err := r.await(ctx, w.name, "take a message", func() bool { return len(r.available()) > 0 }); err != nil {
				return
			}
			free := r.available()
			m := free[r.choose(len(free))]
			m.holder, w.held = w, m
			m.attempts++
			r.note("%-10s takes message %d, attempt %d", w.name, m.seq, m.attempts)
			err := reconciler.ReconcileFrom(ctx, r.streams.told(m), id, m.attempts)
			var failure *sandbox.Failure
			acknowledged := err == nil || errors.As(err, &failure)
			how, ctxErr := r.await(ctx, w.name, "acknowledge", nil)
			if ctxErr != nil {
				return
			}
			w.held = nil
			if m.holder == w {
				m.holder = nil
				m.done = acknowledged && how == proceed
			}
			r.note("%-10s hands %d back: %v", w.name, m.seq, err)
		}
	}()
}

// available are the messages that nobody works on.
func (r *run) available() []*message {
	var free []*message
	for _, m := range r.streams.queue {
		if m.holder == nil && !m.done {
			free = append(free, m)
		}
	}
	return free
}

// end kills a worker: what it was about to send is never sent, or has just been.
func (r *run) end(w *workerRun, why string) {
	r.note("%-10s %s", w.name, why)
	if m := w.held; m != nil && m.holder == w {
		m.holder = nil
	}
	w.cancel()
	for i := range r.workers {
		if r.workers[i] == w {
			r.workers = append(r.workers[:i], r.workers[i+1:]...)
			break
		}
	}
}

const (
	// stormSteps is how long bad things go on.
	stormSteps = 300
	// maxSteps is far above what any history needs.
	maxSteps = 5000
)

// play runs the plan, with faults while it lasts, and then until all is quiet.
func (r *run) play(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer func() { stop(); r.settle() }()
	plan := r.plan()
	for range 1 + r.choose(3) {
		r.startWorker(ctx)
	}
	sequential := r.choose(2) == 0
	sweeps := 0
	for n := 0; ; n++ {
		if n == maxSteps {
			r.problem = "not quiet after all this time"
			return
		}
		ready := r.settle()
		stormy := n < stormSteps
		if stormy && r.clients == 0 && r.storm(ctx) {
			continue
		}
		if len(plan) > 0 && r.clients < 4 && (r.clients == 0 || (!sequential && r.choose.percent(15))) {
			r.request(ctx, plan[0].op, plan[0].spec)
			plan = plan[1:]
			continue
		}
		if stormy && r.storm(ctx) {
			continue
		}
		if p := r.kube.pod; p != nil && p.DeletionTimestamp != nil && (r.choose.percent(r.faults.gone) || !stormy || len(ready) == 0) {
			r.kube.podGone()
			continue
		}
		if len(ready) == 0 {
			switch {
			case len(r.ghosts) > 0:
				r.thaw()
			case r.working():
				r.pass(11 * time.Second)
			case r.clients > 0:
				r.pass(patience) // their outcome has been lost
			case len(plan) > 0:
			case r.faults.freeze > 0 && sweeps < 2:
				sweeps++
				n = max(n, stormSteps) // another sweep would make up for one that met a fault
				r.pass(2 * time.Minute)
				r.sweep(ctx)
			default:
				return
			}
			continue
		}
		st := ready[r.choose(len(ready))]
		v := proceed
		if stormy && r.choose.percent(r.faults.lost) {
			v = verdict(1 + r.choose(2))
			r.note("%-10s %s: %s", st.actor, st.label, [...]string{"", "never arrives", "the answer is lost"}[v])
		}
		r.grant(st, v)
	}
}

// working tells whether a message is left.
func (r *run) working() bool {
	for _, m := range r.streams.queue {
		if !m.done {
			return true
		}
	}
	return false
}

type planned struct {
	op   jobs.Op
	spec sandbox.Spec
}

func (r *run) plan() []planned {
	plan := make([]planned, 2+r.choose(4))
	for i := range plan {
		plan[i].op = jobs.Present
		if r.choose(3) == 0 {
			plan[i].op = jobs.Absent
		}
		plan[i].spec = sandbox.Spec{ThreadID: "t", UserID: "u", SkillsPath: "/mnt/skills"}
		if r.choose(5) == 0 {
			plan[i].spec.MaxShellSessions = 5 + 10*r.choose(2)
		}
	}
	return plan
}

// storm lets one bad thing happen, perhaps.
func (r *run) storm(ctx context.Context) bool {
	f := r.faults
	switch {
	case r.choose.percent(f.crash):
		w := r.workers[r.choose(len(r.workers))]
		r.lastWords(w)
		r.end(w, "is killed")
		r.startWorker(ctx)
	case r.choose.percent(f.redeliver):
		w := r.workers[r.choose(len(r.workers))]
		if w.held == nil {
			return false
		}
		// It was frozen. Its lease is over when it wakes up: it sends nothing any more.
		r.end(w, "is too slow, its message goes to somebody else")
		r.startWorker(ctx)
	case len(r.ghosts) > 0 && r.choose.percent(10):
		r.thaw()
	case r.choose.percent(f.freeze):
		return r.freeze(ctx)
	case r.choose.percent(f.disturb):
		r.kube.disturb(r.choose(3))
	case f.quota && r.choose.percent(2):
		r.kube.quotaFull = !r.kube.quotaFull
		r.note("%-10s quota full: %v", "somebody", r.kube.quotaFull)
	case r.choose.percent(f.expire) && !r.working() && r.clients == 0:
		r.note("%-10s an hour passes", "")
		r.streams.expire(r.choose(2) == 0)
	case r.choose.percent(f.outcomeLost):
		r.note("%-10s loses the outcomes", "NATS")
		r.streams.loseOutcomes()
	case r.choose.percent(f.streamLost):
		// It was away for longer than the leases of the workers last.
		for len(r.workers) > 0 {
			r.lastWords(r.workers[0])
			r.end(r.workers[0], "loses its lease")
		}
		r.note("%-10s comes back empty", "NATS")
		r.lossy = true
		r.streams.loseIntents(r.choose(2) == 0)
		r.startWorker(ctx)
	case r.choose.percent(f.apiCrash) && len(r.cancels) > 0:
		for _, st := range r.settle() {
			if cancel := r.cancels[st.actor]; cancel != nil {
				r.note("%-10s its api dies", st.actor)
				cancel()
				return true
			}
		}
		return false
	default:
		return false
	}
	return true
}

// freeze stops a worker that is about to write. Its message goes to somebody else.
func (r *run) freeze(ctx context.Context) bool {
	w := r.workers[r.choose(len(r.workers))]
	for _, st := range r.pending(w.name) {
		if !strings.HasPrefix(st.label, "create") && !strings.HasPrefix(st.label, "delete") {
			continue
		}
		r.note("%-10s is frozen, about to %s", w.name, st.label)
		w.held.holder = nil
		r.frozen[w.name] = true
		r.ghosts = append(r.ghosts, w)
		r.workers = slices.DeleteFunc(r.workers, func(o *workerRun) bool { return o == w })
		r.startWorker(ctx)
		return true
	}
	return false
}

// thaw lets a frozen worker write what it was about to write, and kills it.
func (r *run) thaw() {
	w := r.ghosts[0]
	r.ghosts = r.ghosts[1:]
	delete(r.frozen, w.name)
	r.note("%-10s wakes up", w.name)
	for _, st := range r.pending(w.name) {
		if strings.HasPrefix(st.label, "create") || strings.HasPrefix(st.label, "delete") {
			r.grant(st, loseBack)
		}
	}
	r.end(w, "is killed")
}

// sweep is a worker that looks for what was left over.
func (r *run) sweep(ctx context.Context) {
	r.clients++
	records, cluster := client{r.streams, "sweep"}, r.cluster("sweep")
	s := worker.NewSweep(records, cluster, worker.NewReconciler(records, cluster, workerMetrics, nil),
		jobs.Config{Deadline: 24 * time.Hour, AckWait: 15 * time.Second},
		worker.Config{SweepInterval: time.Minute, OrphanGrace: time.Minute}, workerMetrics, slog.New(slog.DiscardHandler))
	go func() {
		defer func() { r.clients-- }()
		r.note("%-10s begins", "sweep")
		r.note("%-10s ends: %v", "sweep", s.Once(ctx))
	}()
}

// lastWords lets what a worker has sent just before its death still arrive, or not.
func (r *run) lastWords(w *workerRun) {
	for _, st := range r.settle() {
		if st.actor == w.name && st.label != "take a message" && r.choose(2) == 0 {
			r.grant(st, loseBack)
		}
	}
}

// check says which invariant does not hold, or nothing.
func (r *run) check() string {
	if r.problem != "" {
		return r.problem
	}
	v := r.streams.view(id)
	pod, service := r.kube.pod, r.kube.service
	for _, a := range r.answers {
		if a.uid == "" {
			return "no truth: a create was answered without a Pod"
		}
		at, deleted := r.kube.deleted[a.uid]
		if deleted && !r.kube.outside[a.uid] && !r.deletedAfter(a.position, at) {
			return fmt.Sprintf("friendly fire: %s had been promised, and was deleted without a later request to do so", a.uid)
		}
	}
	if v.Seq == 0 {
		return "" // whatever was asked for has been forgotten
	}
	if !v.Finished() && !r.lossy && r.faults.outcomeLost == 0 {
		return "loss: the last request has no outcome"
	}
	switch {
	case v.Intent.Op == jobs.Absent:
		if pod != nil || service != nil {
			return "resurrection: the last request was to delete, and something is there: " + describe(pod, service)
		}
	case v.Outcome != nil && v.Outcome.State == jobs.Failed:
		if v.Outcome.Undoing {
			return "loss: a failure was not undone to the end"
		}
		for _, obj := range objects(pod, service) {
			if over(v.Lineage(), obj.annotation) {
				return "orphan: " + obj.uid + " is left of a request that failed, or of a life that was ended before it"
			}
		}
	case v.Outcome == nil && r.faults.outcomeLost > 0:
		// Nobody knows any more whether it failed.
	case !r.touched():
		if pod == nil || service == nil {
			return "divergence: the last request was to create, and there is " + describe(pod, service)
		}
		for _, obj := range objects(pod, service) {
			if over(v.Lineage(), obj.annotation) {
				return "divergence: " + obj.uid + " belongs to a life that was ended"
			}
		}
	}
	return ""
}

// over tells whether an object belongs to a life that was ended, or to a request that failed. It says once more what the product does, so
// that a fault there is not one here.
func over(l sandbox.Lineage, annotation string) bool {
	at := sandbox.ParseGeneration(annotation).In(l.Generation.Stream)
	ended := l.Fence > 0 && at <= l.Fence
	undone := l.Settled < at && at <= l.Failed
	return ended || undone
}

// touched tells whether somebody else took something away, which a new request would heal.
func (r *run) touched() bool { return len(r.kube.outside) > 0 }

// deletedAfter tells whether a delete was accepted after the given position and before another.
func (r *run) deletedAfter(position, before int) bool {
	for i := position; i < before; i++ {
		if r.streams.accepted[i].Op == jobs.Absent {
			return true
		}
	}
	return false
}

type seen struct{ uid, annotation string }

func objects(pod *corev1.Pod, service *corev1.Service) []seen {
	var all []seen
	if pod != nil {
		all = append(all, seen{string(pod.UID), pod.Annotations[sandbox.GenerationAnnotation]})
	}
	if service != nil {
		all = append(all, seen{string(service.UID), service.Annotations[sandbox.GenerationAnnotation]})
	}
	return all
}

func describe(pod *corev1.Pod, service *corev1.Service) string {
	if all := objects(pod, service); len(all) > 0 {
		return fmt.Sprint(all)
	}
	return "nothing"
}

func (r *run) history() string { return strings.Join(r.log, "\n") }
