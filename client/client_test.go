package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/client"
)

// A step is what a script answers to one request.
type step struct {
	status int
	body   string
	header http.Header
	err    error
	// hang gives no answer until the request is given up.
	hang bool
}

// A script answers one request after the other, the last one over and over, without a network, so that time can be a bubble's.
type script struct {
	mu    sync.Mutex
	steps []step
	seen  []string
	at    []time.Time
	last  *http.Request
}

func (s *script) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		body, _ = io.ReadAll(req.Body)
		_ = req.Body.Close()
	}
	s.mu.Lock()
	s.seen = append(s.seen, strings.TrimSpace(req.Method+" "+req.URL.RequestURI()+" "+string(body)))
	s.at = append(s.at, time.Now())
	s.last = req
	now := s.steps[0]
	if len(s.steps) > 1 {
		s.steps = s.steps[1:]
	}
	s.mu.Unlock()
	if now.hang {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	if now.err != nil {
		return nil, now.err
	}
	res := &http.Response{StatusCode: now.status, Header: now.header, Body: io.NopCloser(strings.NewReader(now.body)), Request: req}
	if res.Header == nil {
		res.Header = http.Header{}
	}
	return res, nil
}

func (s *script) client(opts ...client.Option) *client.Client {
	return client.New("http://provisioner/", "secret", append([]client.Option{client.WithHTTPClient(&http.Client{Transport: s})}, opts...)...)
}

func answers(steps ...step) *script { return &script{steps: steps} }

func ok(body string) step { return step{status: 200, body: body} }

func refusal(status int, detail string, header ...string) step {
	s := step{status: status, body: fmt.Sprintf(`{"detail":%q}`, detail), header: http.Header{"X-Request-Id": {"r1"}}}
	for i := 0; i+1 < len(header); i += 2 {
		s.header.Set(header[i], header[i+1])
	}
	return s
}

const (
	pending = `{"sandbox_id":"a1","sandbox_url":null,"status":"Pending","max_shell_sessions":10,"ready":false,"reason":"ImagePullBackOff","message":"no such image"}`
	running = `{"sandbox_id":"a1","sandbox_url":"http://node:1","status":"Running","max_shell_sessions":10,"ready":true,"created_at":"2026-08-01T09:30:00Z"}`
)

func TestRequests(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer step
		call   func(context.Context, *client.Client) (any, error)
		want   string
		prefer string
		result any
	}{
		"create sends what is set": {
			ok(running), func(ctx context.Context, c *client.Client) (any, error) {
				s, err := c.Create(ctx, client.CreateRequest{
					SandboxID: "a1", UserID: "alice", MaxShellSessions: 3,
					ExtraMounts: []client.Mount{{HostPath: "/s/a", ContainerPath: "/mnt/acp-workspace", ReadOnly: true}},
				})
				return s, err
			},
			`POST /api/sandboxes {"sandbox_id":"a1","user_id":"alice","extra_mounts":[{"host_path":"/s/a","container_path":"/mnt/acp-workspace","read_only":true}],"max_shell_sessions":3}`,
			"", &client.Sandbox{
				ID: "a1", URL: "http://node:1", Status: client.Running, MaxShellSessions: 10, Ready: true,
				CreatedAt: time.Date(2026, 8, 1, 9, 30, 0, 0, time.UTC),
			},
		},
		"an asynchronous create tells that it is queued": {
			step{status: 202, body: `{"sandbox_id":"a1","sandbox_url":null,"status":"Pending","ready":false}`},
			func(ctx context.Context, c *client.Client) (any, error) {
				return c.Create(ctx, client.CreateRequest{SandboxID: "a1"}, client.RespondAsync(), client.Wait(1500*time.Millisecond))
			},
			`POST /api/sandboxes {"sandbox_id":"a1"}`, "respond-async, wait=2", &client.Sandbox{ID: "a1", Status: client.Pending, Queued: true},
		},
		"get": {
			ok(running), func(ctx context.Context, c *client.Client) (any, error) {
				s, err := c.Get(ctx, "a1")
				return s.URL, err
			}, "GET /api/sandboxes/a1", "", "http://node:1",
		},
		"an id that is none stays in one piece": {
			ok(`{"ok":true,"sandbox_id":"../a?b"}`), func(ctx context.Context, c *client.Client) (any, error) {
				return nil, c.Delete(ctx, "../a?b", client.RespondAsync())
			}, "DELETE /api/sandboxes/..%2Fa%3Fb", "respond-async", nil,
		},
		"presence": {
			ok(`{"sandbox_id":"a1","exists":false,"container_id":null}`), func(ctx context.Context, c *client.Client) (any, error) {
				return c.Presence(ctx, "a1")
			}, "GET /api/sandboxes/a1/presence", "", &client.Presence{ID: "a1"},
		},
		"job": {
			ok(`{"sandbox_id":"a1","op":"present","state":"retrying","generation":7,"attempts":2,"reason":"Throttled"}`),
			func(ctx context.Context, c *client.Client) (any, error) { return c.Job(ctx, "a1") },
			"GET /api/sandboxes/a1/job", "",
			&client.Job{ID: "a1", Op: client.Present, State: client.JobRetrying, Generation: 7, Attempts: 2, Reason: "Throttled"},
		},
		"capabilities": {
			ok(`{"lark_cli_init_image":true,"lark_cli_broker_image":false}`),
			func(ctx context.Context, c *client.Client) (any, error) { return c.Capabilities(ctx) },
			"GET /api/capabilities", "", &client.Capabilities{LarkRuntime: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := answers(tc.answer)
			got, err := tc.call(t.Context(), s.client())
			require.NoError(t, err)
			require.Equal(t, []string{tc.want}, s.seen)
			require.Equal(t, tc.result, got)
			require.Equal(t, tc.prefer, s.last.Header.Get("Prefer"))
			require.Equal(t, "secret", s.last.Header.Get("X-API-Key"))
		})
	}
}

func TestProbesSendNoKeyAndAreNotRepeated(t *testing.T) {
	t.Parallel()
	s := answers(refusal(503, "nats: away", "Retry-After", "1"))
	err := s.client().Ready(t.Context())
	require.ErrorIs(t, err, client.ErrUnavailable)
	require.ErrorContains(t, err, "nats: away")
	require.ErrorIs(t, s.client().Health(t.Context()), client.ErrUnavailable)
	require.Equal(t, []string{"GET /readyz", "GET /health"}, s.seen)
	require.Empty(t, s.last.Header.Get("X-API-Key"))
}

func TestList(t *testing.T) {
	t.Parallel()
	pages := []step{
		ok(`{"sandboxes":[{"sandbox_id":"a1"},{"sandbox_id":"a2"}],"count":2,"continue":"a2"}`),
		ok(`{"sandboxes":[{"sandbox_id":"a3"}],"count":1}`),
	}
	ids := func(c *client.Client, most int) (ids []string, err error) {
		for sandbox, err := range c.List(t.Context()) {
			if err != nil {
				return ids, err
			}
			if ids = append(ids, sandbox.ID); len(ids) == most {
				break
			}
		}
		return ids, nil
	}

	s := answers(pages...)
	got, err := ids(s.client(client.WithPageSize(2)), 0)
	require.NoError(t, err)
	require.Equal(t, []string{"a1", "a2", "a3"}, got)
	require.Equal(t, []string{"GET /api/sandboxes?limit=2", "GET /api/sandboxes?continue=a2&limit=2"}, s.seen)

	s = answers(pages...)
	got, err = ids(s.client(), 1)
	require.NoError(t, err)
	require.Equal(t, []string{"a1"}, got)
	require.Len(t, s.seen, 1, "who stops asking gets no more pages")

	s = answers(pages[0], refusal(500, "Kubernetes cannot be read"))
	got, err = ids(s.client(), 0)
	require.ErrorContains(t, err, "Kubernetes cannot be read")
	require.Equal(t, []string{"a1", "a2"}, got)
}

func TestErrors(t *testing.T) {
	t.Parallel()
	all := []error{
		client.ErrInvalid, client.ErrUnauthorized, client.ErrNotFound, client.ErrConflict, client.ErrCapacity, client.ErrQuota, client.ErrUnavailable,
	}
	for name, tc := range map[string]struct {
		answer step
		is     []error
		detail string
	}{
		"bad mounts":             {refusal(400, "Too many"), []error{client.ErrInvalid}, "Too many"},
		"no key":                 {step{status: 401, body: "Unauthorized"}, []error{client.ErrUnauthorized}, "Unauthorized"},
		"nothing there":          {refusal(404, "Sandbox 'a1' not found"), []error{client.ErrNotFound}, "Sandbox 'a1' not found"},
		"less capacity":          {refusal(409, "Insufficient capacity: 3"), []error{client.ErrConflict, client.ErrCapacity}, "Insufficient capacity: 3"},
		"deleted meanwhile":      {refusal(409, "The sandbox was deleted"), []error{client.ErrConflict}, "The sandbox was deleted"},
		"a large body":           {refusal(413, "larger"), []error{client.ErrInvalid}, "larger"},
		"a full quota":           {refusal(429, "exceeded quota", "Retry-After", "10"), []error{client.ErrQuota}, "exceeded quota"},
		"a refused Pod":          {refusal(500, "Pod creation failed: no"), nil, "Pod creation failed: no"},
		"no broker":              {refusal(503, "no image"), []error{client.ErrUnavailable}, "no image"},
		"a redirect":             {step{status: 302, header: http.Header{"Location": {"http://elsewhere/"}}}, nil, "Found"},
		"somebody else's answer": {step{status: 404, body: "<html>"}, []error{client.ErrNotFound}, "Not Found"},
		"two wrong fields": {step{status: 422, body: `{"detail":[
			{"type":"missing","loc":["body","sandbox_id"],"msg":"Field required","input":{}},
			{"type":"finite_number","loc":["body","extra_mounts",0,"read_only"],"msg":"wrong","input":1e400}]}`},
			[]error{client.ErrInvalid}, "sandbox_id: Field required; extra_mounts.0.read_only: wrong"},
		"a body that is none": {step{status: 422, body: `{"detail":[{"type":"missing","loc":["body"],"msg":"Field required","input":null}]}`},
			[]error{client.ErrInvalid}, "Field required"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := answers(tc.answer)
			_, err := s.client().Get(t.Context(), "a1")
			var answer *client.Error
			require.ErrorAs(t, err, &answer)
			require.Equal(t, tc.answer.status, answer.Status)
			require.Equal(t, tc.detail, answer.Detail)
			require.Equal(t, tc.answer.header.Get("X-Request-Id"), answer.RequestID)
			require.Len(t, s.seen, 1, "none of these gets better by repeating it")
			for _, target := range all {
				require.Equal(t, slices.Contains(tc.is, target), errors.Is(err, target), "%v", target)
			}
		})
	}
}

func TestErrorCarriesTheJob(t *testing.T) {
	t.Parallel()
	s := answers(step{status: 404, body: `{"detail":"no","job":{"sandbox_id":"a1","op":"present","state":"queued","generation":4,"attempts":0}}`})
	_, err := s.client().Get(t.Context(), "a1")
	var answer *client.Error
	require.ErrorAs(t, err, &answer)
	require.Equal(t, client.JobQueued, answer.Job.State)
}

func TestRetries(t *testing.T) {
	t.Parallel()
	refused := step{err: errors.New("connection refused")}
	busy := refusal(503, "busy", "Retry-After", "1")
	for name, tc := range map[string]struct {
		steps   []step
		opts    []client.Option
		timeout time.Duration
		// pauses are the shortest and the longest between attempts, in milliseconds.
		pauses [][2]int64
		is     error
	}{
		"a connection that is refused": {
			steps: []step{refused, refused, ok(running)}, pauses: [][2]int64{{100, 300}, {200, 600}},
		},
		"an answer that never comes": {
			steps: []step{{hang: true}, ok(running)}, opts: []client.Option{client.WithAttemptTimeout(time.Second)},
			pauses: [][2]int64{{1100, 1300}},
		},
		"a proxy without a server": {
			steps: []step{{status: 502, body: "<html>"}, {status: 504}, ok(running)}, pauses: [][2]int64{{100, 300}, {200, 600}},
		},
		"a proxy that throttles": {
			steps: []step{{status: 429, header: http.Header{"Retry-After": {"2"}}}, ok(running)}, pauses: [][2]int64{{2000, 2000}},
		},
		"Retry-After in seconds":         {steps: []step{busy, ok(running)}, pauses: [][2]int64{{1000, 1000}}},
		"Retry-After as a date":          {steps: []step{refusal(503, "busy", "Retry-After", "Sat, 01 Jan 2000 00:00:03 GMT"), ok(running)}, pauses: [][2]int64{{3000, 3000}}},
		"five tries":                     {steps: []step{refused}, pauses: [][2]int64{{100, 300}, {200, 600}, {400, 1200}, {800, 2400}}, is: client.ErrUnavailable},
		"as many tries as allowed":       {steps: []step{refused}, opts: []client.Option{client.WithTries(2)}, pauses: [][2]int64{{100, 300}}, is: client.ErrUnavailable},
		"no repetition when not allowed": {steps: []step{busy}, opts: []client.Option{client.WithTries(1)}, is: client.ErrUnavailable},
		"a refusal without Retry-After":  {steps: []step{refusal(503, "no broker")}, is: client.ErrUnavailable},
		"a full quota":                   {steps: []step{refusal(429, "quota", "Retry-After", "10")}, is: client.ErrQuota},
		"a pause longer than the deadline": {
			steps: []step{refusal(503, "busy", "Retry-After", "5")}, timeout: 4 * time.Second, is: client.ErrUnavailable,
		},
		"a pause longer than anybody's patience": {steps: []step{refusal(503, "busy", "Retry-After", "3600")}, is: client.ErrUnavailable},
		"a caller who gives up":                  {steps: []step{{hang: true}}, timeout: time.Second, is: context.DeadlineExceeded},
		"an answer that is none":                 {steps: []step{ok("<html>")}, is: new(json.SyntaxError)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if tc.timeout > 0 {
					var cancel func()
					ctx, cancel = context.WithTimeout(ctx, tc.timeout)
					defer cancel()
				}
				s := answers(tc.steps...)
				sandbox, err := s.client(tc.opts...).Create(ctx, client.CreateRequest{SandboxID: "a1"})
				switch syntax := new(json.SyntaxError); {
				case tc.is == nil:
					require.NoError(t, err)
					require.Equal(t, client.Running, sandbox.Status)
				case errors.As(tc.is, &syntax):
					require.ErrorAs(t, err, &syntax)
				default:
					require.ErrorIs(t, err, tc.is)
				}
				require.Len(t, s.at, len(tc.pauses)+1, "attempts")
				for i, pause := range tc.pauses {
					got := s.at[i+1].Sub(s.at[i]).Milliseconds()
					require.GreaterOrEqual(t, got, pause[0], "pause %d", i)
					require.LessOrEqual(t, got, pause[1], "pause %d", i)
				}
				for _, seen := range s.seen {
					require.Equal(t, `POST /api/sandboxes {"sandbox_id":"a1"}`, seen, "each attempt is whole")
				}
			})
		})
	}
}

func TestCancelEndsThePause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := answers(refusal(503, "busy", "Retry-After", "30"))
		start, done := time.Now(), make(chan error)
		go func() { done <- s.client().Delete(ctx, "a1") }()
		synctest.Wait()
		cancel()
		require.ErrorContains(t, <-done, "busy", "the last answer tells more than the end of the context")
		require.Zero(t, time.Since(start))
	})
}

func TestBaseURLThatIsNone(t *testing.T) {
	t.Parallel()
	require.Error(t, client.New("::", "secret").Health(t.Context()))
}

func TestWaitReady(t *testing.T) {
	t.Parallel()
	missing := refusal(404, "Sandbox 'a1' not found")
	coming := step{status: 404, body: `{"detail":"no","job":{"sandbox_id":"a1","op":"present","state":"retrying","generation":1,"attempts":2,"reason":"Throttled"}}`}
	failed := step{status: 404, body: `{"detail":"no","job":{"sandbox_id":"a1","op":"present","state":"failed","generation":1,"attempts":1,"reason":"Refused","message":"violates PodSecurity"}}`}
	job := func(op, state string) step {
		return ok(fmt.Sprintf(`{"sandbox_id":"a1","op":%q,"state":%q,"generation":1,"attempts":1,"reason":"Refused","message":"violates PodSecurity"}`, op, state))
	}
	phase := func(status, reason string) step {
		return ok(fmt.Sprintf(`{"sandbox_id":"a1","sandbox_url":"http://node:1","status":%q,"ready":false,"reason":%q}`, status, reason))
	}
	for name, tc := range map[string]struct {
		steps []step
		want  string // in the error
		is    []error
		took  time.Duration
	}{
		"a ready one":                       {steps: []step{ok(running)}},
		"one that is starting":              {steps: []step{ok(pending), ok(pending), ok(running)}, took: time.Second},
		"one that runs and is not ready":    {steps: []step{phase("Running", ""), ok(running)}, took: 500 * time.Millisecond},
		"one of which nobody knows":         {steps: []step{phase("Unknown", ""), ok(running)}, took: 500 * time.Millisecond},
		"one that is queued":                {steps: []step{coming, ok(pending), ok(running)}, took: time.Second},
		"one that is queued, asked for":     {steps: []step{missing, job("present", "queued"), ok(running)}, took: 500 * time.Millisecond},
		"one that was evicted":              {steps: []step{phase("Failed", "Evicted")}, want: "Evicted", is: []error{client.ErrFailed}},
		"one that ended":                    {steps: []step{phase("Succeeded", "")}, want: "Succeeded", is: []error{client.ErrFailed}},
		"one that was refused":              {steps: []step{failed}, want: "Refused: violates PodSecurity", is: []error{client.ErrFailed, client.ErrNotFound}},
		"one that lost its Pod":             {steps: []step{phase("NotFound", ""), missing}, want: "NotFound", is: []error{client.ErrFailed, client.ErrNotFound}},
		"one whose Pod is being made again": {steps: []step{phase("NotFound", ""), job("present", "running"), ok(running)}, took: 500 * time.Millisecond},
		"one that never was":                {steps: []step{missing, missing}, want: "NotFound", is: []error{client.ErrFailed, client.ErrNotFound}},
		"one that is deleted":               {steps: []step{missing, job("absent", "succeeded")}, want: "NotFound", is: []error{client.ErrFailed, client.ErrNotFound}},
		"one that was removed by hand":      {steps: []step{missing, job("present", "succeeded"), missing}, want: "NotFound", is: []error{client.ErrFailed, client.ErrNotFound}},
		"one that was made meanwhile":       {steps: []step{missing, job("present", "succeeded"), ok(running)}},
		"one whose Pod is lost for good":    {steps: []step{missing, job("present", "succeeded"), phase("NotFound", "")}, want: "NotFound", is: []error{client.ErrFailed, client.ErrNotFound}},
		"one that cannot be read again":     {steps: []step{missing, job("present", "succeeded"), refusal(500, "cannot be read")}, want: "cannot be read"},
		"one whose delete is queued":        {steps: []step{missing, job("absent", "queued")}, want: "NotFound", is: []error{client.ErrFailed, client.ErrNotFound}},
		"a cluster that cannot be read":     {steps: []step{refusal(500, "Kubernetes cannot be read")}, want: "cannot be read"},
		"a queue that cannot be read":       {steps: []step{missing, refusal(500, "Internal Server Error")}, want: "Internal Server Error"},
		"one that never starts":             {steps: []step{ok(pending)}, want: "ImagePullBackOff no such image", is: []error{context.DeadlineExceeded}, took: 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				start := time.Now()
				sandbox, err := answers(tc.steps...).client().WaitReady(ctx, "a1")
				require.Equal(t, tc.took, time.Since(start))
				if tc.want == "" {
					require.NoError(t, err)
					require.True(t, sandbox.Ready)
					return
				}
				require.ErrorContains(t, err, tc.want)
				for _, target := range []error{client.ErrFailed, client.ErrNotFound, context.DeadlineExceeded} {
					require.Equal(t, slices.Contains(tc.is, target), errors.Is(err, target), "%v", target)
				}
			})
		})
	}
}

func TestPollInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		_, err := answers(ok(pending), ok(running)).client(client.WithPollInterval(3*time.Second)).WaitReady(t.Context(), "a1")
		require.NoError(t, err)
		require.Equal(t, 3*time.Second, time.Since(start))
	})
}

func TestWaitGone(t *testing.T) {
	t.Parallel()
	missing := refusal(404, "Sandbox 'a1' not found")
	coming := step{status: 404, body: `{"detail":"no","job":{"sandbox_id":"a1","op":"present","state":"queued","generation":1,"attempts":0}}`}
	failed := step{status: 404, body: `{"detail":"no","job":{"sandbox_id":"a1","op":"present","state":"failed","generation":1,"attempts":0}}`}
	there := ok(`{"sandbox_id":"a1","exists":true,"container_id":"u"}`)
	away := ok(`{"sandbox_id":"a1","exists":false,"container_id":null}`)
	for name, tc := range map[string]struct {
		steps []step
		want  string
		took  time.Duration
	}{
		"one that is gone":             {steps: []step{missing, away}},
		"one that goes":                {steps: []step{ok(running), missing, there, missing, away}, took: time.Second},
		"one that is coming":           {steps: []step{coming, ok(running)}, want: "not gone", took: 10 * time.Second},
		"one that failed to come":      {steps: []step{failed, away}},
		"a cluster that hides the Pod": {steps: []step{missing, refusal(500, "no")}, want: "no"},
		"a cluster that hides it all":  {steps: []step{refusal(500, "no")}, want: "no"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				start := time.Now()
				err := answers(tc.steps...).client().WaitGone(ctx, "a1")
				require.Equal(t, tc.took, time.Since(start))
				if tc.want == "" {
					require.NoError(t, err)
					return
				}
				require.ErrorContains(t, err, tc.want)
			})
		})
	}
}
