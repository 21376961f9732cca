package worker

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"sandbox-provisioner/internal/jobs"
	"sandbox-provisioner/internal/k8s"
	"sandbox-provisioner/internal/sandbox"
)

// Publisher is where a sweep asks for what is owed.
type Publisher interface {
	Records
	Publish(ctx context.Context, v jobs.View, in jobs.Intent) (jobs.View, error)
}

// Inventory tells what exists.
type Inventory interface {
	List(ctx context.Context) ([]k8s.Sighting, error)
	Get(ctx context.Context, id string) (k8s.Sighting, error)
}

// A Sweep is the backstop behind the jobs: now and then it compares all that exists with the last intents, and has carried out
// what is owed. It is for the one case that the jobs cannot see: a worker that was frozen between its last check and its
// write, and died after it.
type Sweep struct {
	records    Publisher
	inventory  Inventory
	reconciler *Reconciler
	jobs       jobs.Config
	cfg        Config
	now        func() time.Time
	metrics    *Metrics
	log        *slog.Logger
	// halves is since when a sandbox has been seen with one of its objects only. Forgetting it delays a clean-up.
	halves map[string]time.Time
}

// NewSweep returns a Sweep.
func NewSweep(
	records Publisher, inventory Inventory, reconciler *Reconciler, jobsCfg jobs.Config, cfg Config, metrics *Metrics,
	log *slog.Logger,
) *Sweep {
	return &Sweep{
		records: records, inventory: inventory, reconciler: reconciler, jobs: jobsCfg, cfg: cfg, now: time.Now, metrics: metrics,
		log: log, halves: map[string]time.Time{},
	}
}

// Run sweeps every SWEEP_INTERVAL, give or take half of it so that workers do not sweep together, until ctx ends.
func (s *Sweep) Run(ctx context.Context) {
	for s.cfg.SweepInterval > 0 {
		timer := time.NewTimer(s.cfg.SweepInterval/2 + rand.N(s.cfg.SweepInterval)) //nolint:gosec // jitter, not a secret
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		if err := s.Once(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("sweep not complete", plain(err))
		}
	}
}

// Once looks at everything that exists. Its error joins those of the ids that could not be looked at.
func (s *Sweep) Once(ctx context.Context) (err error) {
	defer func() { s.metrics.ranSweep(err) }()
	seen, err := s.inventory.List(ctx)
	if err != nil {
		return err
	}
	halves := make(map[string]time.Time)
	var errs []error
	for _, found := range seen {
		id := found.State.ID
		if found.Pod != found.Service {
			halves[id] = s.now()
			if since, known := s.halves[id]; known {
				halves[id] = since
			}
		}
		errs = append(errs, s.look(ctx, found, halves[id]))
	}
	s.halves = halves
	return errors.Join(errs...)
}

// look has carried out what is owed to one id. half is since when one of its objects is missing, zero when none is.
func (s *Sweep) look(ctx context.Context, found k8s.Sighting, half time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, s.jobs.AckWait-leaseSlack)
	defer cancel()
	v, err := s.records.Look(ctx, found.State.ID)
	if err != nil {
		return err
	}
	if s.owed(v, found, half).debt == nothing {
		return nil
	}
	// The list is older than the look: what was missing may have been made, and promised, in between. Whatever changes from
	// here on needs a newer intent, before which ours is refused.
	if found, err = s.inventory.Get(ctx, v.ID); err != nil {
		return err
	}
	if found.Pod == found.Service {
		half = time.Time{}
	}
	what := s.owed(v, found, half)
	if what.debt == nothing {
		return nil
	}
	s.metrics.findings.WithLabelValues(what.kind, string(what.debt)).Inc()
	s.log.Warn("sweep found something wrong", slog.String(keySandboxID, v.ID), slog.String(keyKind, what.kind),
		slog.String(keyAction, string(what.debt)))
	switch what.debt {
	case again:
		_, err = s.records.Publish(ctx, v, v.Create(*v.Intent.Spec, uuid.NewString(), s.now(), s.jobs.Deadline))
	case removal:
		_, err = s.records.Publish(ctx, v, v.Delete(uuid.NewString(), s.now()))
	default:
		err = s.reconciler.Reconcile(ctx, v.ID, 1)
	}
	if errors.Is(err, jobs.ErrConflict) {
		return nil // somebody asked for something else meanwhile, and that is carried out
	}
	return err
}

// leaseSlack keeps the work of a sweep on one id as short as an attempt at a job.
const leaseSlack = time.Second

// A debt is what is owed to an id.
type debt string

const (
	nothing     debt = ""
	reconciling debt = "reconcile" // the last intent, once more
	again       debt = "create"    // the same sandbox, whole, and not of a life that was ended
	removal     debt = "remove"    // of a half that nobody owns
)

// A finding is what is wrong with an id, and what is owed to it for that.
type finding struct {
	kind string
	debt debt
}

var (
	unfinishedJob   = finding{"unfinished_job", reconciling} // its message may be lost
	endedLife       = finding{"leftover", reconciling}       // of an intent that ended without a sandbox
	endedLifeWithin = finding{"leftover", again}             // in a sandbox that lives
	missingService  = finding{"missing_service", again}      // a Pod that was promised is given its Service back
	orphanedPod     = finding{"orphaned_pod", removal}
	orphanedService = finding{"orphaned_service", removal}

	// findings are all of them.
	findings = []finding{unfinishedJob, endedLife, endedLifeWithin, missingService, orphanedPod, orphanedService}
)

// owed compares what exists with the last intent.
func (s *Sweep) owed(v jobs.View, found k8s.Sighting, half time.Time) finding {
	l := v.Lineage()
	fits := (!found.Pod || l.Accepts(found.PodGeneration)) && (!found.Service || l.Accepts(found.ServiceGeneration))
	orphaned := !half.IsZero() && s.now().Sub(half) >= s.cfg.OrphanGrace
	switch {
	case v.Seq > 0 && !v.Finished():
		if v.Intent == nil || s.now().Sub(v.Intent.AcceptedAt) > 4*s.jobs.AckWait {
			return unfinishedJob
		}
		return finding{}
	case v.Living() && !fits:
		return endedLifeWithin
	case v.Living() && found.Pod && orphaned:
		return missingService
	case v.Seq > 0 && !v.Living() && !s.allowed(v, l, found):
		return endedLife
	case orphaned && found.Pod:
		return orphanedPod
	case orphaned:
		return orphanedService
	}
	return finding{}
}

// allowed tells whether what exists may exist after an intent that ended without a sandbox.
func (s *Sweep) allowed(v jobs.View, l sandbox.Lineage, found k8s.Sighting) bool {
	spared := func(g sandbox.Generation) bool {
		if v.Intent != nil && v.Intent.Op == jobs.Absent {
			return !l.Precedes(g)
		}
		return l.Accepts(g)
	}
	return (!found.Pod || spared(found.PodGeneration)) && (!found.Service || spared(found.ServiceGeneration))
}
