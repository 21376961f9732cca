package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/jobs"
	"sandbox-provisioner/internal/sandbox"
)

func TestReplyError(t *testing.T) {
	t.Parallel()
	failure := func(reason sandbox.Reason, object string) error {
		return fmt.Errorf("wrapped: %w", &sandbox.Failure{Reason: reason, Object: object, Message: "<words> & more"})
	}
	for name, tc := range map[string]struct {
		err        error
		status     int
		detail     string
		retryAfter string
	}{
		"less capacity is a conflict":             {failure(sandbox.ReasonCapacity, sandbox.Pod), 409, "Insufficient capacity: <words> & more", ""},
		"a Pod without the broker is a conflict":  {failure(sandbox.ReasonBroker, sandbox.Pod), 409, "<words> & more", ""},
		"a name that is taken is a conflict":      {failure(sandbox.ReasonNameTaken, sandbox.Service), 409, "<words> & more", ""},
		"a full quota asks to come back":          {failure(sandbox.ReasonQuota, sandbox.Pod), 429, "<words> & more", "10"},
		"a deadline asks to come back":            {failure(sandbox.ReasonDeadline, ""), 503, "<words> & more", "1"},
		"a refused Pod is named":                  {failure(sandbox.ReasonRefused, sandbox.Pod), 500, "Pod creation failed: <words> & more", ""},
		"a refused Service is named":              {failure(sandbox.ReasonRefused, sandbox.Service), 500, "Service creation failed: <words> & more", ""},
		"an intent that is none is our fault":     {failure(sandbox.ReasonMalformed, ""), 500, "Pod creation failed: <words> & more", ""},
		"what passes asks to come back":           {&sandbox.Retry{After: 1500 * time.Millisecond, Err: errors.New("busy")}, 503, "busy", "2"},
		"what passes at once asks for a second":   {&sandbox.Retry{Err: errors.New("busy")}, 503, "busy", "1"},
		"a mount outside the rules":               {&sandbox.MountError{Detail: "Too many"}, 400, "Too many", ""},
		"a create that was overtaken":             {errDeleted, 409, "The sandbox was deleted while being created", ""},
		"a failure that is being undone failed":   {fmt.Errorf("%w: %w", errPending, failure(sandbox.ReasonQuota, "")), 429, "<words> & more", "10"},
		"a delete that is not complete":           {&partialError{"pod: stuck"}, 500, "Partial cleanup: pod: stuck", ""},
		"a job that did not work yet says why":    {&troubleError{sandbox.ReasonServer, "etcd is ill"}, 503, "The request is queued and will be carried out; ask again. It did not work yet: etcd is ill", "1"},
		"a job that is not done asks to wait":     {errPending, 503, "The request is queued and will be carried out; ask again", "1"},
		"a queue that is away asks to wait":       {fmt.Errorf("%w: x", jobs.ErrUnavailable), 503, "The job queue is not available", "1"},
		"a deadline of ours asks to come back":    {fmt.Errorf("x: %w", context.DeadlineExceeded), 503, "No answer in time", "1"},
		"a body that is too large":                {&http.MaxBytesError{Limit: 7}, 413, "Request body is larger than 7 bytes", ""},
		"words of the finder's own":               {fmt.Errorf("x: %w", &statusError{404, "Sandbox 'é' not found", 0}), 404, "Sandbox 'é' not found", ""},
		"anything else is kept from the client":   {errors.New("10.0.0.1 said no"), 500, "Internal Server Error", ""},
		"nothing can be said of an unknown error": {fmt.Errorf("%w", errors.ErrUnsupported), 500, "Internal Server Error", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			c, _ := gin.CreateTestContext(w)
			replyError(c, tc.err)
			require.True(t, c.IsAborted())
			require.Equal(t, tc.status, w.Code)
			require.Equal(t, fmt.Sprintf(`{"detail":"%s"}`, tc.detail), w.Body.String())
			require.Equal(t, tc.retryAfter, w.Header().Get("Retry-After"))
			require.Equal(t, "application/json", w.Header().Get("Content-Type"))
			require.ErrorIs(t, c.Errors.Last().Err, tc.err, "the access log gets it")
		})
	}
}

func TestReplyInvalid(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	c, _ := gin.CreateTestContext(w)
	_, errs := decodeCreate([]byte(`{"sandbox_id": "<é>"}`))
	replyInvalid(c, errs)
	require.True(t, c.IsAborted())
	require.Equal(t, 422, w.Code)
	require.Equal(t, `{"detail":[{"type":"string_pattern_mismatch","loc":["body","sandbox_id"],`+
		`"msg":"String should match pattern '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'","input":"<é>",`+
		`"ctx":{"pattern":"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}}]}`, w.Body.String())
}

func TestReplyOfWhatIsNoJSON(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	c, _ := gin.CreateTestContext(w)
	reply(c, http.StatusOK, func() {})
	require.Equal(t, 500, w.Code)
	require.Equal(t, `{"detail":"Internal Server Error"}`, w.Body.String())
	require.NotEmpty(t, c.Errors)
}
