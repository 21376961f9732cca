package jobs

import (
	"time"

	"go.opentelemetry.io/otel/trace"

	"sandbox-provisioner/internal/sandbox"
)

// A View is what the streams say about one id at one moment. All decisions are made on a View, and whatever is written
// because of it is refused when the View no longer holds.
type View struct {
	ID string
	// Stream is the identity of the stream of intents.
	Stream int64
	// Seq is the position of the last intent; 0 when there is none.
	Seq uint64
	// Intent is the last intent; nil when there is none, or when it is Malformed.
	Intent *Intent
	// Malformed says why the last message is not an intent.
	Malformed error
	// Outcome is the record of what became of this or an earlier intent; nil when there is none.
	Outcome *Outcome
	// OutcomeStream is the identity of the stream of outcomes.
	OutcomeStream int64
	// OutcomeSeq is the position of the last outcome in its own stream, whoever it is about; 0 when there is none.
	OutcomeSeq uint64
	// Origin is the span that has published the last intent; it is not valid when nobody traces.
	Origin trace.SpanContext
}

// FirstView is the View after in, the newest intent of its id, at position seq, if it is also the first of which anything is known; else
// nil. unseen is the View before it. An outcome of what was asked earlier and has been forgotten is not seen: it would accept fewer
// objects, and refuses whatever is recorded on this View. That in has not ended is for the caller to know: carried out again, it would
// take a Pod away that has failed since.
func FirstView(unseen View, seq uint64, in *Intent, origin trace.SpanContext) *View {
	if !in.First || in.Outcomes != unseen.OutcomeStream {
		return nil
	}
	unseen.Seq, unseen.Intent, unseen.Origin = seq, in, origin
	return &unseen
}

// Generation is that of the last intent.
func (v View) Generation() sandbox.Generation {
	return sandbox.Generation{Stream: v.Stream, Seq: v.Seq}
}

// Finished tells whether the last intent has ended, well or not.
func (v View) Finished() bool {
	return v.Seq > 0 && v.Outcome != nil && v.Outcome.FinishedSeq >= v.Seq
}

// Living tells whether the last intent is a Present that succeeded: then the cluster alone can tell the rest.
func (v View) Living() bool {
	return v.Finished() && v.Intent != nil && v.Intent.Op == Present && v.Outcome.State == Succeeded
}

// Pending tells whether a create is queued or under way.
func (v View) Pending() bool {
	return v.Intent != nil && v.Intent.Op == Present && !v.Finished()
}

// Lineage is the place of the last intent among the lives of its id.
func (v View) Lineage() sandbox.Lineage {
	l := sandbox.Lineage{Generation: v.Generation(), Settled: v.settled()}
	if v.Intent != nil {
		l.Fence = v.Intent.Fence
	}
	if v.Outcome != nil {
		l.Failed = v.Outcome.FailedSeq
	}
	return l
}

// fence is what a Present that follows the last intent must carry.
func (v View) fence() uint64 {
	switch {
	case v.Intent == nil:
		return 0
	case v.Intent.Op == Absent:
		return v.Seq
	default:
		return v.Intent.Fence
	}
}

// settled is the newest position whose objects may have been promised to somebody, before the last intent. An outcome says
// so. Without one, no intent that is still retained has ended: outcomes are kept for as long after them. But whatever is
// older than those may have been promised, and if the outcomes have been lost, everything.
func (v View) settled() uint64 {
	switch {
	case v.Outcome != nil:
		return v.Outcome.SettledSeq
	case v.Seq == 0:
		return 0
	case v.Intent == nil, v.Intent.First, v.outcomesLost():
		return v.Seq - 1
	default:
		return v.Intent.Settled
	}
}

// outcomesLost tells whether the stream of outcomes is another one than when the last intent was published.
func (v View) outcomesLost() bool { return v.Intent != nil && v.Intent.Outcomes != v.OutcomeStream }

// nextSettled is what an intent that follows the last one must carry.
func (v View) nextSettled() uint64 {
	if v.Outcome == nil && (v.Intent == nil || v.outcomesLost()) {
		return v.Seq // the last one may have been promised too
	}
	return v.settled()
}

// Create is a Present that follows the last intent.
func (v View) Create(spec sandbox.Spec, requestID string, now time.Time, deadline time.Duration) Intent {
	return Intent{
		Op: Present, SandboxID: v.ID, Spec: &spec, SpecHash: spec.Hash(), Fence: v.fence(),
		Settled: v.nextSettled(), First: v.Seq == 0, Outcomes: v.OutcomeStream,
		RequestID: requestID, AcceptedAt: now, Deadline: now.Add(deadline),
	}
}

// Delete is an Absent that follows the last intent.
func (v View) Delete(requestID string, now time.Time) Intent {
	return Intent{
		Op: Absent, SandboxID: v.ID, RequestID: requestID, AcceptedAt: now,
		Settled: v.nextSettled(), First: v.Seq == 0, Outcomes: v.OutcomeStream,
	}
}

// Serves tells whether the last intent already asks for what in asks for, so that waiting for it is enough. It is so
// when in itself was published and only its acknowledgement was lost, and when somebody asked for the same and his job
// has not ended. An intent that was accepted more than patience ago does not serve: its outcome may have been lost, and
// asking once more is harmless.
func (v View) Serves(in Intent, now time.Time, patience time.Duration) bool {
	last := v.Intent
	switch {
	case last == nil:
		return false
	case last.RequestID == in.RequestID:
		return true
	case v.Finished() || now.Sub(last.AcceptedAt) > patience:
		return false
	default:
		return last.Op == in.Op && last.SpecHash == in.SpecHash
	}
}
