package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"sandbox-provisioner/internal/jobs"
	"sandbox-provisioner/internal/sandbox"
)

const (
	// minRetryAfter is for errors that pass and do not say when.
	minRetryAfter = time.Second
	// quotaRetryAfter: a quota frees up when somebody deletes a sandbox, which is a matter of people, not of milliseconds.
	quotaRetryAfter = 10 * time.Second
)

// A statusError is an answer that whoever found the error has already worded for the client.
type statusError struct {
	Status int
	Detail string
	// RetryAfter is sent in whole seconds, rounded up; 0 sends none.
	RetryAfter time.Duration
}

func (e *statusError) Error() string { return e.Detail }

// statusOf is the one place that decides what an error is in HTTP.
func statusOf(err error) *statusError {
	var status *statusError
	var failure *sandbox.Failure
	var retry *sandbox.Retry
	var mount *sandbox.MountError
	var partial *partialError
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &status):
		return status
	case errors.As(err, &mount):
		return &statusError{Status: http.StatusBadRequest, Detail: mount.Detail}
	case errors.As(err, &failure):
		return statusOfFailure(failure)
	case errors.Is(err, errDeleted):
		return &statusError{Status: http.StatusConflict, Detail: "The " + errDeleted.Error()}
	case errors.As(err, &partial):
		return &statusError{Status: http.StatusInternalServerError, Detail: partial.Error()}
	case errors.Is(err, errPending), errors.Is(err, errOvertaken):
		detail := "The request is queued and will be carried out; ask again"
		if trouble := (*troubleError)(nil); errors.As(err, &trouble) {
			detail += ". It did not work yet: " + trouble.message
		}
		return &statusError{http.StatusServiceUnavailable, detail, minRetryAfter}
	case errors.Is(err, jobs.ErrUnavailable):
		return &statusError{http.StatusServiceUnavailable, "The job queue is not available", minRetryAfter}
	case errors.As(err, &retry):
		return &statusError{http.StatusServiceUnavailable, retry.Error(), max(retry.After, minRetryAfter)}
	case errors.As(err, &tooLarge):
		detail := "Request body is larger than " + strconv.FormatInt(tooLarge.Limit, 10) + " bytes"
		return &statusError{Status: http.StatusRequestEntityTooLarge, Detail: detail}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &statusError{http.StatusServiceUnavailable, "No answer in time", minRetryAfter}
	default:
		return &statusError{Status: http.StatusInternalServerError, Detail: "Internal Server Error"}
	}
}

func statusOfFailure(f *sandbox.Failure) *statusError {
	switch f.Reason {
	case sandbox.ReasonCapacity:
		// The gateway looks for the word "capacity".
		return &statusError{Status: http.StatusConflict, Detail: "Insufficient capacity: " + f.Message}
	case sandbox.ReasonBroker, sandbox.ReasonNameTaken:
		return &statusError{Status: http.StatusConflict, Detail: f.Message}
	case sandbox.ReasonQuota:
		return &statusError{http.StatusTooManyRequests, f.Message, quotaRetryAfter}
	case sandbox.ReasonDeadline:
		// Only what passes is tried until the deadline, so that it may have passed by now.
		return &statusError{http.StatusServiceUnavailable, f.Message, minRetryAfter}
	default:
		detail := cmp.Or(f.Object, sandbox.Pod) + " creation failed: " + f.Message
		return &statusError{Status: http.StatusInternalServerError, Detail: detail}
	}
}

// unreadable words an error of a status read. It is never a 404: only Kubernetes can say that something does not exist.
func unreadable(err error) error {
	status := &statusError{Status: http.StatusInternalServerError, Detail: "Kubernetes cannot be read: " + err.Error()}
	var retry *sandbox.Retry
	if errors.As(err, &retry) {
		status.Status, status.RetryAfter = http.StatusServiceUnavailable, max(retry.After, minRetryAfter)
	}
	return status
}

// A reported error has words that may be shown.
type reported struct {
	text string
	err  error
}

func (e *reported) Error() string { return e.text }

func (e *reported) Unwrap() error { return e.err }

// report hands err to the access log and the trace.
func report(c *gin.Context, err error) {
	_ = c.Error(&reported{hide(c, sandbox.Plain(err.Error())), err})
}

// replyError ends the request with {"detail":"…"}. The error itself goes into the access log.
func replyError(c *gin.Context, err error) {
	report(c, err)
	status := statusOf(err)
	if status.RetryAfter > 0 {
		c.Header("Retry-After", strconv.Itoa(int(math.Ceil(status.RetryAfter.Seconds()))))
	}
	if status.Status == http.StatusRequestEntityTooLarge {
		c.Header("Connection", "close") // the rest of the body is not worth reading
	}
	replyDetail(c, status.Status, hide(c, status.Detail))
}

// replyInvalid ends the request with 422 and what is wrong with each field.
func replyInvalid(c *gin.Context, errs []fieldError) {
	replyDetail(c, http.StatusUnprocessableEntity, errs)
}

// replyUnauthorized is the one error that is not JSON.
func replyUnauthorized(c *gin.Context) {
	c.Abort()
	c.Header("Allow", "") // set by the router already when the method is wrong, which is nobody's business without a key
	c.Data(http.StatusUnauthorized, "text/plain; charset=utf-8", []byte("Unauthorized"))
}

func replyNotFound(c *gin.Context) { replyDetail(c, http.StatusNotFound, "Not Found") }

func replyMethodNotAllowed(c *gin.Context) {
	replyDetail(c, http.StatusMethodNotAllowed, "Method Not Allowed")
}

func replyDetail(c *gin.Context, status int, detail any) {
	c.Abort()
	reply(c, status, map[string]any{"detail": detail})
}

// reply writes body as JSON, in the form of the Python provisioner: no charset, nothing escaped for HTML.
func reply(c *gin.Context, status int, body any) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(body); err != nil {
		report(c, err)
		c.Data(http.StatusInternalServerError, "application/json", []byte(`{"detail":"Internal Server Error"}`))
		return
	}
	c.Data(status, "application/json", bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}
