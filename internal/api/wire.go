package api

import (
	"time"

	"github.com/gin-gonic/gin"

	"sandbox-provisioner/internal/jobs"
	"sandbox-provisioner/internal/sandbox"
)

// A sandboxReply is one sandbox in an answer. The first four fields are what clients have always relied on.
type sandboxReply struct {
	ID string `json:"sandbox_id"`
	// URL is null while it cannot be known; the key is always there.
	URL    *string        `json:"sandbox_url"`
	Status sandbox.Status `json:"status"`
	// MaxShellSessions is absent when there is no Pod to ask.
	MaxShellSessions int `json:"max_shell_sessions,omitempty"`

	Ready      bool       `json:"ready"`
	Reason     string     `json:"reason,omitempty"`
	Message    string     `json:"message,omitempty"`
	CreatedAt  *time.Time `json:"created_at,omitempty"`
	Node       string     `json:"node,omitempty"`
	Generation uint64     `json:"generation,omitempty"`
}

func newSandboxReply(c *gin.Context, s sandbox.State) sandboxReply {
	r := sandboxReply{
		ID: s.ID, Status: s.Status, MaxShellSessions: s.Capacity,
		Ready: s.Ready, Reason: s.Reason, Message: hide(c, s.Message), Node: s.Node, Generation: s.Generation,
	}
	if s.URL != "" {
		r.URL = &s.URL
	}
	if !s.CreatedAt.IsZero() {
		r.CreatedAt = &s.CreatedAt
	}
	return r
}

type listReply struct {
	Sandboxes []sandboxReply `json:"sandboxes"`
	Count     int            `json:"count"`
	// Continue asks for the next page; it is absent on the last one.
	Continue string `json:"continue,omitempty"`
}

type deleteReply struct {
	OK bool   `json:"ok"`
	ID string `json:"sandbox_id"`
}

type presenceReply struct {
	ID     string  `json:"sandbox_id"`
	Exists bool    `json:"exists"`
	PodUID *string `json:"container_id"`
}

type capabilitiesReply struct {
	LarkInitImage   bool `json:"lark_cli_init_image"`
	LarkBrokerImage bool `json:"lark_cli_broker_image"`
}

// A jobReply is the newest job of an id.
type jobReply struct {
	ID         string         `json:"sandbox_id"`
	Op         jobs.Op        `json:"op"`
	State      jobs.State     `json:"state"`
	Generation uint64         `json:"generation"`
	Attempts   int            `json:"attempts"`
	Reason     sandbox.Reason `json:"reason,omitempty"`
	Message    string         `json:"message,omitempty"`
	AcceptedAt *time.Time     `json:"accepted_at,omitempty"`
	UpdatedAt  *time.Time     `json:"updated_at,omitempty"`
}

func newJobReply(c *gin.Context, v jobs.View) jobReply {
	r := jobReply{ID: v.ID, State: jobs.Queued, Generation: v.Seq}
	if v.Intent != nil {
		r.Op, r.AcceptedAt, r.UpdatedAt = v.Intent.Op, &v.Intent.AcceptedAt, &v.Intent.AcceptedAt
	}
	if o := v.Outcome; o != nil && o.Generation == v.Generation() {
		r.State, r.Attempts, r.Reason, r.Message, r.UpdatedAt = o.State, o.Attempts, o.Reason, hide(c, o.Message), &o.UpdatedAt
	}
	return r
}

// A missingReply is a 404 of an id that has a job to tell about.
type missingReply struct {
	Detail string    `json:"detail"`
	Job    *jobReply `json:"job,omitempty"`
}
