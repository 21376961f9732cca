package sandbox

import (
	"fmt"
	"strconv"
	"strings"
)

// GenerationAnnotation carries the Generation of the intent that created an object.
const GenerationAnnotation = "sandbox-provisioner/generation"

// A Generation orders the intents of one id, and through them the objects that they made. The stream's identity is part
// of it because a stream that was lost and made anew counts from 1 again.
type Generation struct {
	// Stream is the creation time of the stream, in Unix nanoseconds.
	Stream int64 `json:"stream"`
	// Seq is the sequence number of the intent in that stream, from 1.
	Seq uint64 `json:"seq"`
}

// String is the form that GenerationAnnotation holds.
func (g Generation) String() string { return fmt.Sprintf("%d/%d", g.Stream, g.Seq) }

// ParseGeneration reads what String wrote. Anything else, such as the absent annotation of an object that another
// provisioner made, is the zero Generation, which is older than every intent.
func ParseGeneration(s string) Generation {
	stream, seq, _ := strings.Cut(s, "/")
	g := Generation{}
	var err error
	if g.Stream, err = strconv.ParseInt(stream, 10, 64); err != nil {
		return Generation{}
	}
	if g.Seq, err = strconv.ParseUint(seq, 10, 64); err != nil {
		return Generation{}
	}
	return g
}

// In is the position of g in the given stream: 0, older than all, when g belongs to another one.
func (g Generation) In(stream int64) uint64 {
	if g.Stream != stream {
		return 0
	}
	return g.Seq
}

// A Lineage is the place of one intent among the lives of its id. It decides which existing objects the intent may take
// for its own.
type Lineage struct {
	// Generation is the intent's own.
	Generation Generation
	// Fence is the position of the newest deletion before the intent; 0 when none is known.
	Fence uint64
	// Settled is the position of the newest intent that succeeded. Objects up to it may have been promised to somebody.
	Settled uint64
	// Failed is the position of the newest intent that failed for good after Settled; 0 when none did. Objects in
	// (Settled, Failed] were promised to nobody and are being undone, possibly at this very moment.
	Failed uint64
}

// Accepts tells whether an existing object of generation g may satisfy the intent. One that is not accepted is a
// leftover of a life that has ended.
func (l Lineage) Accepts(g Generation) bool {
	at := g.In(l.Generation.Stream)
	if l.Fence > 0 && at <= l.Fence {
		return false
	}
	return !l.Condemns(g)
}

// Rejects is the opposite of Accepts.
func (l Lineage) Rejects(g Generation) bool { return !l.Accepts(g) }

// Condemns tells whether an object of generation g belongs to an intent that failed, so that it must be undone.
func (l Lineage) Condemns(g Generation) bool {
	at := g.In(l.Generation.Stream)
	return at > l.Settled && at <= l.Failed
}

// Precedes tells whether an object of generation g was made before the intent, so that a deletion applies to it.
func (l Lineage) Precedes(g Generation) bool {
	return g.In(l.Generation.Stream) < l.Generation.Seq
}
