package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// What errors.Is finds in the errors of a Client.
var (
	// ErrInvalid is a request that can never succeed as it is: 400, 413 and 422.
	ErrInvalid = errors.New("invalid request")
	// ErrUnauthorized is a key that is missing or wrong: 401.
	ErrUnauthorized = errors.New("unauthorized")
	// ErrNotFound is a sandbox or a job that does not exist: 404.
	ErrNotFound = errors.New("not found")
	// ErrConflict is a create that what exists does not serve: 409.
	ErrConflict = errors.New("conflict")
	// ErrCapacity is the ErrConflict of a sandbox with less room than asked for. Deleting it first helps.
	ErrCapacity = errors.New("insufficient capacity")
	// ErrQuota is a create that the quota of the namespace refuses: 429. It helps when somebody deletes a sandbox.
	ErrQuota = errors.New("quota exceeded")
	// ErrUnavailable is no answer, or 502, 503 or 504, or a proxy's 429. The request may have been carried out all the same.
	ErrUnavailable = errors.New("unavailable")
	// ErrFailed is a sandbox that will not become ready by itself. WaitReady returns it as a [*FailedError].
	ErrFailed = errors.New("sandbox failed")
)

// An Error is an answer that is no success.
type Error struct {
	// Status is the HTTP status.
	Status int
	// Detail says what is wrong, in the provisioner's words or, if somebody else answered, in those of HTTP.
	Detail string
	// Fields are the fields that are wrong, of a 422.
	Fields []FieldError
	// RetryAfter is how long to wait before asking again; 0 when the answer does not say.
	RetryAfter time.Duration
	// RequestID finds the request in the provisioner's log.
	RequestID string
	// Job is the create that is under way, or has failed, of a sandbox that is not found.
	Job *Job

	// worded tells that the words are the provisioner's, not a proxy's.
	worded bool
}

// A FieldError says what is wrong with one field.
type FieldError struct {
	// Type is the kind of fault, such as "missing" or "string_pattern_mismatch".
	Type string `json:"type"`
	// Loc is the way to the field: "body", then names and indices.
	Loc []any  `json:"loc"`
	Msg string `json:"msg"`
	// Input is what was sent.
	Input json.RawMessage `json:"input"`
	// Ctx holds the rule that was broken.
	Ctx map[string]any `json:"ctx,omitempty"`
}

// Path is Loc without the "body", as in "extra_mounts.0.host_path".
func (f FieldError) Path() string {
	parts := make([]string, 0, len(f.Loc))
	for _, part := range f.Loc[min(1, len(f.Loc)):] {
		parts = append(parts, fmt.Sprint(part))
	}
	return strings.Join(parts, ".")
}

func (e *Error) Error() string { return fmt.Sprintf("provisioner: %d: %s", e.Status, e.Detail) }

// Is makes errors.Is find the Err values.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrInvalid:
		return e.Status == http.StatusBadRequest || e.Status == http.StatusRequestEntityTooLarge || e.Status == http.StatusUnprocessableEntity
	case ErrUnauthorized:
		return e.Status == http.StatusUnauthorized
	case ErrNotFound:
		return e.Status == http.StatusNotFound
	case ErrConflict:
		return e.Status == http.StatusConflict
	case ErrCapacity:
		// The contract has no more than this word.
		return e.Status == http.StatusConflict && strings.Contains(e.Detail, "capacity")
	case ErrQuota:
		return e.Status == http.StatusTooManyRequests && e.worded
	case ErrUnavailable:
		return e.unavailable()
	}
	return false
}

func (e *Error) unavailable() bool {
	switch e.Status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	case http.StatusTooManyRequests:
		return !e.worded
	}
	return false
}

// passes tells whether the same request may succeed later by itself. The provisioner says so with Retry-After; a proxy need not.
func (e *Error) passes() bool { return e.unavailable() && (e.RetryAfter > 0 || !e.worded) }

func newError(res *http.Response, body []byte) *Error {
	e := &Error{
		Status: res.StatusCode, Detail: http.StatusText(res.StatusCode),
		RequestID: res.Header.Get("X-Request-Id"), RetryAfter: retryAfter(res.Header.Get("Retry-After"), time.Now()),
	}
	var reply struct {
		Detail json.RawMessage `json:"detail"`
		Job    *Job            `json:"job"`
	}
	if json.Unmarshal(body, &reply) != nil || reply.Detail == nil {
		return e
	}
	e.Job = reply.Job
	if json.Unmarshal(reply.Detail, &e.Detail) == nil {
		e.worded = true
		return e
	}
	if json.Unmarshal(reply.Detail, &e.Fields) == nil {
		e.worded = true
		faults := make([]string, len(e.Fields))
		for i, f := range e.Fields {
			faults[i] = strings.TrimPrefix(f.Path()+": "+f.Msg, ": ")
		}
		e.Detail = strings.Join(faults, "; ")
	}
	return e
}

// retryAfter reads the header, which is a number of seconds or a date; 0 when it is neither, or has passed.
func retryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseInt(header, 10, 32); err == nil {
		return time.Duration(max(seconds, 0)) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}

// A FailedError is a sandbox that will not become ready by itself. errors.Is finds [ErrFailed] in it, and [ErrNotFound] when
// nothing of the sandbox is left.
type FailedError struct {
	ID string
	// Sandbox is what is left of it; nil if nothing is.
	Sandbox *Sandbox
	// Job is its newest job, if that is what failed; otherwise nil.
	Job *Job
}

func (e *FailedError) Error() string {
	reason, message := e.Reason(), ""
	switch {
	case e.Job != nil:
		message = e.Job.Message
	case e.Sandbox != nil:
		message = e.Sandbox.Message
	}
	text := fmt.Sprintf("sandbox %q will not become ready: %s", e.ID, reason)
	if message != "" {
		text += ": " + message
	}
	return text
}

// Reason says in one word why: that of the job or of the Pod, or else the Pod's phase.
func (e *FailedError) Reason() string {
	switch {
	case e.Job != nil && e.Job.Reason != "":
		return e.Job.Reason
	case e.Sandbox != nil && e.Sandbox.Reason != "":
		return e.Sandbox.Reason
	case e.Sandbox != nil:
		return string(e.Sandbox.Status)
	}
	return string(NotFound)
}

// Is makes errors.Is find ErrFailed and ErrNotFound.
func (e *FailedError) Is(target error) bool {
	return target == ErrFailed || target == ErrNotFound && (e.Sandbox == nil || e.Sandbox.Status == NotFound)
}
