package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// A CreateRequest describes a sandbox. Fields that are left out have the provisioner's defaults.
type CreateRequest struct {
	// SandboxID is required: 1 to 51 lower-case letters, digits and inner dashes.
	SandboxID string `json:"sandbox_id"`
	// ThreadID is whose user data is mounted; the SandboxID if empty.
	ThreadID string `json:"thread_id,omitempty"`
	// UserID is whose skills are mounted; "default" if empty.
	UserID string `json:"user_id,omitempty"`
	// ExtraMounts are up to ten more directories of DeerFlow's state.
	ExtraMounts []Mount `json:"extra_mounts,omitempty"`
	// IncludeLegacySkills is accepted without effect.
	IncludeLegacySkills bool `json:"include_legacy_skills,omitempty"`
	// SkillsContainerPath is where the skills appear; /mnt/skills if empty.
	SkillsContainerPath string `json:"skills_container_path,omitempty"`
	// MaxShellSessions is how many shells the sandbox must have room for; 0 leaves it to the image, which has 10.
	MaxShellSessions int `json:"max_shell_sessions,omitempty"`
	// ProvisionLarkCLIRuntime puts the Lark command line into the sandbox.
	ProvisionLarkCLIRuntime bool `json:"provision_lark_cli_runtime,omitempty"`
	// ProvisionLarkCLIBroker puts it into a sidecar that keeps the credentials. It wins over ProvisionLarkCLIRuntime.
	ProvisionLarkCLIBroker bool `json:"provision_lark_cli_broker,omitempty"`
}

// A Mount is one directory of DeerFlow's state on the node, inside the sandbox. Both paths are absolute.
type Mount struct {
	HostPath      string `json:"host_path"`
	ContainerPath string `json:"container_path"`
	ReadOnly      bool   `json:"read_only,omitempty"`
}

// A Status is the phase of a sandbox's Pod.
type Status string

// The values of Status. NotFound is a sandbox whose Pod has been lost.
const (
	Pending   Status = "Pending"
	Running   Status = "Running"
	Succeeded Status = "Succeeded"
	Failed    Status = "Failed"
	Unknown   Status = "Unknown"
	NotFound  Status = "NotFound"
)

// A Sandbox is what the provisioner says of one.
type Sandbox struct {
	ID string `json:"sandbox_id"`
	// URL is where the sandbox serves; empty while nobody can know.
	URL    string `json:"sandbox_url"`
	Status Status `json:"status"`
	// MaxShellSessions is how many shells it has room for; 0 without a Pod.
	MaxShellSessions int `json:"max_shell_sessions,omitempty"`
	// Ready tells whether the sandbox takes requests.
	Ready bool `json:"ready"`
	// Reason and Message say why it is not ready, in a word and in Kubernetes' own.
	Reason    string    `json:"reason,omitempty"`
	Message   string    `json:"message,omitempty"`
	CreatedAt time.Time `json:"created_at,omitzero"`
	Node      string    `json:"node,omitempty"`
	// Generation is the number of the job that made it; 0 when another provisioner did.
	Generation uint64 `json:"generation,omitempty"`

	// Queued is set by Create when the request is safe in the queue and the sandbox not in the cluster yet.
	Queued bool `json:"-"`
}

// Presence tells whether there is a Pod.
type Presence struct {
	ID     string `json:"sandbox_id"`
	Exists bool   `json:"exists"`
	// PodUID tells one life of an id from the next; empty without a Pod.
	PodUID string `json:"container_id"`
}

// Capabilities are what a provisioner is set up for.
type Capabilities struct {
	// LarkRuntime tells whether ProvisionLarkCLIRuntime has an image.
	LarkRuntime bool `json:"lark_cli_init_image"`
	// LarkBroker tells whether ProvisionLarkCLIBroker has one.
	LarkBroker bool `json:"lark_cli_broker_image"`
}

// An Op is what a job is to bring about.
type Op string

// The two Ops.
const (
	Present Op = "present"
	Absent  Op = "absent"
)

// A JobState is how far a job has come.
type JobState string

// The values of JobState. The last two are the end.
const (
	JobQueued    JobState = "queued"
	JobRunning   JobState = "running"
	JobRetrying  JobState = "retrying"
	JobSucceeded JobState = "succeeded"
	JobFailed    JobState = "failed"
)

// A Job is one accepted create or delete.
type Job struct {
	ID         string   `json:"sandbox_id"`
	Op         Op       `json:"op"`
	State      JobState `json:"state"`
	Generation uint64   `json:"generation"`
	Attempts   int      `json:"attempts"`
	// Reason and Message say why it failed, or is being tried again.
	Reason     string    `json:"reason,omitempty"`
	Message    string    `json:"message,omitempty"`
	AcceptedAt time.Time `json:"accepted_at,omitzero"`
	UpdatedAt  time.Time `json:"updated_at,omitzero"`
}

// Finished tells whether the job has ended, well or not.
func (j *Job) Finished() bool { return j.State == JobSucceeded || j.State == JobFailed }

// Create sees to it that a sandbox exists, and returns it; a repeated Create returns the one that exists. The sandbox need not
// be ready yet: see WaitReady.
//
// Errors: [ErrInvalid], [ErrCapacity] and other [ErrConflict], [ErrQuota], [ErrUnavailable] when the provisioner could not do
// it in time, though it may go on, and an [*Error] with status 500 when Kubernetes refuses the sandbox for good.
func (c *Client) Create(ctx context.Context, r CreateRequest, opts ...CallOption) (*Sandbox, error) {
	req := newRequest(http.MethodPost, "/api/sandboxes", opts...)
	var err error
	if req.body, err = json.Marshal(r); err != nil {
		return nil, fmt.Errorf("provisioner: %w", err)
	}
	var s Sandbox
	status, err := c.do(ctx, req, &s)
	s.Queued = status == http.StatusAccepted
	return orNil(&s, err)
}

// Get returns the sandbox as the cluster has it, or [ErrNotFound]. Other errors never mean that it is gone.
func (c *Client) Get(ctx context.Context, id string) (*Sandbox, error) {
	var s Sandbox
	_, err := c.do(ctx, newRequest(http.MethodGet, sandboxPath(id, "")), &s)
	return orNil(&s, err)
}

// List yields the sandboxes in the order of their ids, asking for more as it goes. It ends after the first error.
func (c *Client) List(ctx context.Context) iter.Seq2[*Sandbox, error] {
	return func(yield func(*Sandbox, error) bool) {
		query := url.Values{"limit": {strconv.Itoa(c.pageSize)}}
		for {
			var page struct {
				Sandboxes []*Sandbox `json:"sandboxes"`
				Continue  string     `json:"continue"`
			}
			if _, err := c.do(ctx, newRequest(http.MethodGet, "/api/sandboxes?"+query.Encode()), &page); err != nil {
				yield(nil, err)
				return
			}
			for _, s := range page.Sandboxes {
				if !yield(s, nil) {
					return
				}
			}
			if page.Continue == "" {
				return
			}
			query.Set("continue", page.Continue)
		}
	}
}

// Delete sees to it that the sandbox goes. It returns nil also when there was none. An error with status 500 says that the
// deletion is not complete; the provisioner goes on with it until it is: see WaitGone.
func (c *Client) Delete(ctx context.Context, id string, opts ...CallOption) error {
	_, err := c.do(ctx, newRequest(http.MethodDelete, sandboxPath(id, ""), opts...), nil)
	return err
}

// Presence tells whether there is a Pod, and which.
func (c *Client) Presence(ctx context.Context, id string) (*Presence, error) {
	var p Presence
	_, err := c.do(ctx, newRequest(http.MethodGet, sandboxPath(id, "/presence")), &p)
	return orNil(&p, err)
}

// Job returns the newest job of the sandbox, or [ErrNotFound] when none is remembered.
func (c *Client) Job(ctx context.Context, id string) (*Job, error) {
	var j Job
	_, err := c.do(ctx, newRequest(http.MethodGet, sandboxPath(id, "/job")), &j)
	return orNil(&j, err)
}
