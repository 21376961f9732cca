// Package jobs keeps what was asked for and what became of it: intents and outcomes on NATS JetStream, keyed by sandbox
// id. It decides which of two requests about one id came first, and never forgets an accepted one.
package jobs

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"sandbox-provisioner/internal/sandbox"
)

// Op is what an intent wants of the cluster.
type Op string

// The two Ops.
const (
	Present Op = "present" // a Pod and a Service
	Absent  Op = "absent"  // neither
)

// An Intent is one accepted request about one sandbox. Its sandbox.Generation is given by the stream that holds it.
type Intent struct {
	Op        Op            `json:"op"`
	SandboxID string        `json:"sandbox_id"`
	Spec      *sandbox.Spec `json:"spec,omitempty"` // of a Present
	SpecHash  string        `json:"spec_hash,omitempty"`
	// Fence is the position of the newest Absent before this Present, 0 when none is known. Objects up to it belong to a
	// life that was ended.
	Fence uint64 `json:"fence,omitempty"`
	// Settled, First and Outcomes say what may have been promised before this Present; see View.settled.
	Settled  uint64 `json:"settled,omitempty"`
	First    bool   `json:"first,omitempty"`
	Outcomes int64  `json:"outcomes,omitempty"`
	// RequestID finds an Intent again whose acknowledgement was lost on the way to its publisher.
	RequestID  string    `json:"request_id"`
	AcceptedAt time.Time `json:"accepted_at"`
	// Deadline is when a Present is given up. An Absent has none.
	Deadline time.Time `json:"deadline,omitzero"`
}

// decodeIntent reads an intent about id. Its error means that the message can never be carried out.
func decodeIntent(data []byte, id string) (*Intent, error) {
	var in Intent
	if err := json.Unmarshal(data, &in); err != nil {
		return nil, fmt.Errorf("not an intent: %w", err)
	}
	switch {
	case in.SandboxID != id || !sandbox.ValidID(id):
		return nil, fmt.Errorf("intent about %q under the subject of %q", in.SandboxID, id)
	case in.Op == Present && in.Spec == nil:
		return nil, errors.New("intent without a spec")
	case in.Op != Present && in.Op != Absent:
		return nil, fmt.Errorf("intent with unknown op %q", in.Op)
	}
	return &in, nil
}
