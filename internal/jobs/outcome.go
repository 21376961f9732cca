package jobs

import (
	"time"

	"sandbox-provisioner/internal/sandbox"
)

// State is how far an intent has come.
type State string

// The States. Queued is never recorded: it is the absence of a record.
const (
	Queued    State = "queued"
	Running   State = "running"
	Retrying  State = "retrying"
	Succeeded State = "succeeded"
	Failed    State = "failed"
)

// An Outcome is the one record of what became of the newest job of an id. Each record replaces the one before it, and
// carries on from it what later jobs must know.
type Outcome struct {
	Generation sandbox.Generation `json:"generation"`
	Op         Op                 `json:"op,omitempty"`
	State      State              `json:"state"`
	// Undoing is set on a Failed outcome until its half-made objects are gone.
	Undoing bool           `json:"undoing,omitempty"`
	Reason  sandbox.Reason `json:"reason,omitempty"`
	// Object is the kind of object that Reason is about: sandbox.Pod, sandbox.Service, or empty.
	Object  string `json:"object,omitempty"`
	Message string `json:"message,omitempty"`
	// Sandbox is what a Present that Succeeded made or found, as the API server returned it.
	Sandbox    *sandbox.State `json:"sandbox,omitempty"`
	Attempts   int            `json:"attempts,omitempty"`
	AcceptedAt time.Time      `json:"accepted_at,omitzero"`
	UpdatedAt  time.Time      `json:"updated_at,omitzero"`

	// FinishedSeq is the position of the newest intent that has ended. It never goes back.
	FinishedSeq uint64 `json:"finished_seq,omitempty"`
	// SettledSeq and FailedSeq are the bounds of sandbox.Lineage.
	SettledSeq uint64 `json:"settled_seq,omitempty"`
	FailedSeq  uint64 `json:"failed_seq,omitempty"`
}

// next starts a record about the intent of v from the record before it.
func (v View) next(state State, attempts int, now time.Time) Outcome {
	o := Outcome{Generation: v.Generation(), State: state, Attempts: attempts, UpdatedAt: now}
	if v.Intent != nil {
		o.Op, o.AcceptedAt = v.Intent.Op, v.Intent.AcceptedAt
	}
	o.SettledSeq = v.settled()
	if prev := v.Outcome; prev != nil {
		o.FinishedSeq, o.FailedSeq = prev.FinishedSeq, prev.FailedSeq
	}
	return o
}

// Success is the record of an intent that was carried out. found is nil for an Absent.
func (v View) Success(found *sandbox.State, attempts int, now time.Time) Outcome {
	o := v.next(Succeeded, attempts, now)
	o.Sandbox = found
	o.FinishedSeq, o.SettledSeq, o.FailedSeq = v.Seq, v.Seq, 0
	return o
}

// Failure is the record of an intent that failed for good. It condemns what the intent may have made: from this record
// on, nobody takes those objects for his own, so that they can be removed.
func (v View) Failure(f *sandbox.Failure, attempts int, now time.Time) Outcome {
	o := v.next(Failed, attempts, now)
	o.Undoing = true
	o.Reason, o.Object, o.Message = f.Reason, f.Object, sandbox.Plain(f.Message)
	o.FinishedSeq, o.FailedSeq = v.Seq, v.Seq
	return o
}

// Undone is the record that follows a Failure when its half-made objects are gone.
func (v View) Undone(now time.Time) Outcome {
	o := *v.Outcome
	o.Undoing, o.UpdatedAt = false, now
	return o
}

// Progress is the record of an intent that has not ended: Running, or Retrying for a reason.
func (v View) Progress(state State, r *sandbox.Retry, attempts int, now time.Time) Outcome {
	o := v.next(state, attempts, now)
	if r != nil {
		o.Reason, o.Object, o.Message = r.Reason, r.Object, sandbox.Plain(r.Error())
	}
	return o
}
