package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"sandbox-provisioner/client"
	"sandbox-provisioner/internal/jobs"
	"sandbox-provisioner/internal/k8s"
	"sandbox-provisioner/internal/sandbox"
	"sandbox-provisioner/internal/telemetry"
)

// A scene is what the queue and the cluster say during one request.
type scene struct {
	view       jobs.View
	lookErr    error
	publishErr error
	// done makes every job succeed at once; otherwise none ever ends.
	done     bool
	checked  *sandbox.State
	checkErr error
	sighting k8s.Sighting
	readErr  error
	podUID   string
	down     bool
	panics   bool
	settings k8s.Settings
	// deleteWait is over at once unless it is set.
	deleteWait time.Duration
	trusted    Proxies
	log        *slog.Logger
	metrics    *Metrics
	tracing    trace.TracerProvider
	// keys has the keys and their limit; nil is testKey without one.
	keys *Config
}

type sceneJobs struct{ *scene }

func (s sceneJobs) Look(context.Context, string) (jobs.View, error) { return s.view, s.lookErr }

func (s sceneJobs) Newest(context.Context, string) (sandbox.Generation, error) {
	return s.view.Generation(), s.lookErr
}

func (s sceneJobs) Unseen(id string) (jobs.View, bool) {
	return jobs.View{ID: id, Stream: s.view.Stream}, s.lookErr == nil
}

func (s sceneJobs) Publish(_ context.Context, v jobs.View, in jobs.Intent) (jobs.View, error) {
	if v.Seq != s.view.Seq {
		return jobs.View{}, jobs.ErrConflict
	}
	v.Seq++
	v.Intent = &in
	if s.done {
		v.Outcome = &jobs.Outcome{Generation: v.Generation(), Op: in.Op, State: jobs.Succeeded, Sandbox: s.checked, FinishedSeq: v.Seq}
	}
	return v, s.publishErr
}

func (s sceneJobs) Follow(string) jobs.Follower { return sceneFollower{} }

type sceneFollower struct{}

func (sceneFollower) Next(ctx context.Context, _ int64) (*jobs.Outcome, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (sceneFollower) Close() {}

type sceneCluster struct{ *scene }

func (s sceneCluster) Get(context.Context, string) (k8s.Sighting, error) {
	return s.sighting, s.readErr
}

func (s sceneCluster) Check(context.Context, string, sandbox.Spec, sandbox.Lineage) (*sandbox.State, error) {
	return s.checked, s.checkErr
}

func (s sceneCluster) Gone(context.Context, string, sandbox.Lineage) (bool, error) {
	return true, s.readErr
}

func (s sceneCluster) PodUID(context.Context, string) (string, error) { return s.podUID, s.readErr }

func (s sceneCluster) Explain(_ context.Context, st sandbox.State) sandbox.State { return st }

func (s sceneCluster) List(context.Context) ([]k8s.Sighting, error) {
	if s.panics {
		panic("a fault")
	}
	if !s.sighting.Service {
		return nil, s.readErr
	}
	next := s.sighting
	next.State.ID += "2"
	return []k8s.Sighting{s.sighting, next}, s.readErr
}

// handler serves s with waits that are over at once.
func (s *scene) handler() *gin.Engine {
	if s.settings.ServiceType == "" {
		s.settings.ServiceType = k8s.NodePort
	}
	s.settings.BaseDir = "/.deer-flow"
	cfg := Config{Key: testKey, DeleteWait: max(s.deleteWait, time.Nanosecond), ReadWait: time.Second, TrustedProxies: s.trusted}
	if s.keys != nil {
		cfg.Key, cfg.Keys, cfg.RateLimit, cfg.RateBurst = s.keys.Key, s.keys.Keys, s.keys.RateLimit, s.keys.RateBurst
	}
	metrics := s.metrics
	if metrics == nil {
		metrics = NewMetrics(nil)
	}
	log := s.log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	p := NewProvisioner(sceneJobs{s}, sceneCluster{s}, s.settings, jobs.Config{Deadline: time.Minute, AckWait: time.Minute}, NewMetrics(nil))
	check := telemetry.Check{Name: "nats", Ping: func(context.Context) error {
		if s.down {
			return errors.New("no servers available")
		}
		return nil
	}}
	return NewHandler(p, sceneCluster{s}, s.settings, cfg, metrics, s.tracing, log, check).(*gin.Engine)
}

var (
	sceneTime  = time.Date(2026, 8, 1, 9, 30, 0, 0, time.UTC)
	sceneState = sandbox.State{
		ID: "a1", URL: "http://node:31507", Status: sandbox.Pending, Capacity: 10, Reason: "ImagePullBackOff", Message: "no such image",
		Node: "node-1", CreatedAt: sceneTime, Generation: 3,
	}
	sceneIntent = jobs.Intent{Op: jobs.Present, SandboxID: "a1", Spec: &sandbox.Spec{}, AcceptedAt: sceneTime}
)

// living is a scene in which a sandbox exists.
func living() scene {
	return scene{
		done: true, checked: &sceneState, podUID: "uid-1",
		sighting: k8s.Sighting{State: sceneState, Pod: true, Service: true},
		view: jobs.View{ID: "a1", Seq: 3, Intent: &sceneIntent, Outcome: &jobs.Outcome{
			State: jobs.Succeeded, Generation: sandbox.Generation{Seq: 3}, FinishedSeq: 3, Attempts: 1, UpdatedAt: sceneTime,
		}},
	}
}

// troubled is living with an error of the cluster.
func troubled(err error) scene {
	s := living()
	s.checkErr, s.readErr = err, err
	return s
}

func brief(change func(*scene)) scene {
	s := living()
	change(&s)
	return s
}

func TestEveryReplyIsDocumented(t *testing.T) {
	t.Parallel()
	const create = `{"sandbox_id":"a1"}`
	large := strings.Repeat(" ", maxBody+1)
	async := http.Header{"Prefer": {"respond-async"}}
	patient := http.Header{"Prefer": {"respond-async, wait=1"}}
	forbidden := errors.New("pods is forbidden")
	throttled := &sandbox.Retry{Reason: sandbox.ReasonThrottled, After: 3 * time.Second, Err: errors.New("busy")}
	failure := func(reason sandbox.Reason) scene {
		return troubled(&sandbox.Failure{Reason: reason, Object: sandbox.Pod, Message: "no"})
	}
	noQueue := scene{lookErr: fmt.Errorf("%w: away", jobs.ErrUnavailable)}
	queued := scene{view: jobs.View{ID: "a1", Seq: 1, Intent: &sceneIntent}}
	failed := queued
	failed.view.Outcome = &jobs.Outcome{
		State: jobs.Failed, Generation: sandbox.Generation{Seq: 1}, FinishedSeq: 1, Reason: sandbox.ReasonRefused, Message: "no", UpdatedAt: sceneTime,
	}
	clusterIP := k8s.Settings{ServiceType: k8s.ClusterIP, Namespace: "ns", ClusterDomain: "cluster.local", Port: 8080}

	type request struct {
		name, method, path, body string
		header                   http.Header
		scene                    scene
		want                     int
	}
	cases := []request{
		{"a sandbox that exists", "POST", "/api/sandboxes", create, nil, living(), 200},
		{"a sandbox that is made", "POST", "/api/sandboxes", create, nil, scene{done: true, checked: &sceneState}, 200},
		{"an asynchronous create", "POST", "/api/sandboxes", create, async, scene{}, 202},
		{"an asynchronous create that waits a little", "POST", "/api/sandboxes", create, patient, scene{}, 202},
		{"a create that takes long in ClusterIP mode", "POST", "/api/sandboxes", create, nil, scene{settings: clusterIP}, 202},
		{"a create that takes long in NodePort mode", "POST", "/api/sandboxes", create, nil, scene{}, 503},
		{"a mount from outside", "POST", "/api/sandboxes",
			`{"sandbox_id":"a1","extra_mounts":[{"host_path":"/etc","container_path":"/mnt/acp-workspace"}]}`, nil, scene{}, 400},
		{"less capacity than asked for", "POST", "/api/sandboxes", create, nil, failure(sandbox.ReasonCapacity), 409},
		{"a sandbox without the broker", "POST", "/api/sandboxes", create, nil, failure(sandbox.ReasonBroker), 409},
		{"the runtime where the broker is", "POST", "/api/sandboxes", `{"sandbox_id":"a1","provision_lark_cli_runtime":true}`, nil,
			scene{settings: k8s.Settings{LarkBrokerImage: "broker"}}, 409},
		{"a body that is too large", "POST", "/api/sandboxes", large, nil, scene{}, 413},
		{"a body that is wrong", "POST", "/api/sandboxes", `{"sandbox_id":"A","user_id":7}`, nil, scene{}, 422},
		{"a full quota", "POST", "/api/sandboxes", create, nil, failure(sandbox.ReasonQuota), 429},
		{"a refused Pod", "POST", "/api/sandboxes", create, nil, failure(sandbox.ReasonRefused), 500},
		{"no queue for a create", "POST", "/api/sandboxes", create, nil, noQueue, 503},
		{"no image of the broker", "POST", "/api/sandboxes", `{"sandbox_id":"a1","provision_lark_cli_broker":true}`, nil, scene{}, 503},

		{"a list", "GET", "/api/sandboxes", "", nil, living(), 200},
		{"a page of a list", "GET", "/api/sandboxes?limit=1&continue=a0", "", nil, living(), 200},
		{"an empty list", "GET", "/api/sandboxes", "", nil, scene{}, 200},
		{"a wrong limit", "GET", "/api/sandboxes?limit=x", "", nil, living(), 400},
		{"a list that Kubernetes refuses", "GET", "/api/sandboxes", "", nil, troubled(forbidden), 500},
		{"a list from a busy Kubernetes", "GET", "/api/sandboxes", "", nil, troubled(throttled), 503},

		{"a look at a sandbox", "GET", "/api/sandboxes/a1", "", nil, living(), 200},
		{"a look at a ready one of another provisioner", "GET", "/api/sandboxes/a1", "", nil, brief(func(s *scene) {
			s.sighting.State = sandbox.State{ID: "a1", URL: "http://node:1", Status: sandbox.Running, Capacity: 10, Ready: true, CreatedAt: sceneTime}
		}), 200},
		{"a look at a Service alone", "GET", "/api/sandboxes/a1", "", nil, brief(func(s *scene) {
			s.sighting.Pod = false
			s.sighting.State = sandbox.State{ID: "a1", URL: "http://node:1", Status: sandbox.NotFound, CreatedAt: sceneTime}
		}), 200},
		{"a look at a queued one in ClusterIP mode", "GET", "/api/sandboxes/a1", "", nil, brief(func(s *scene) {
			s.view, s.settings = queued.view, clusterIP
			s.sighting = k8s.Sighting{State: sandbox.State{ID: "a1"}}
		}), 200},
		{"a look at none", "GET", "/api/sandboxes/a1", "", nil, scene{}, 404},
		{"a look at an impossible one", "GET", "/api/sandboxes/A", "", nil, scene{}, 404},
		{"a look at the empty id", "GET", "/api/sandboxes/", "", nil, scene{}, 404},
		{"a look at a queued one", "GET", "/api/sandboxes/a1", "", nil, queued, 404},
		{"a look at a failed one", "GET", "/api/sandboxes/a1", "", nil, failed, 404},
		{"a look that Kubernetes refuses", "GET", "/api/sandboxes/a1", "", nil, troubled(forbidden), 500},
		{"a look at a busy Kubernetes", "GET", "/api/sandboxes/a1", "", nil, troubled(throttled), 503},

		{"a delete", "DELETE", "/api/sandboxes/a1", "", nil, living(), 200},
		{"a delete that may wait", "DELETE", "/api/sandboxes/a1", "", http.Header{"Prefer": {"wait=9"}}, living(), 200},
		{"a delete of an impossible one", "DELETE", "/api/sandboxes/A", "", nil, scene{}, 200},
		{"a delete of the empty id", "DELETE", "/api/sandboxes/", "", nil, scene{}, 200},
		{"an asynchronous delete", "DELETE", "/api/sandboxes/a1", "", async, scene{}, 202},
		{"a delete that takes long", "DELETE", "/api/sandboxes/a1", "", nil, scene{}, 500},
		{"no queue for a delete", "DELETE", "/api/sandboxes/a1", "", nil, noQueue, 503},

		{"a Pod that is present", "GET", "/api/sandboxes/a1/presence", "", nil, living(), 200},
		{"a Pod that is not", "GET", "/api/sandboxes/a1/presence", "", nil, scene{}, 200},
		{"a Pod that Kubernetes hides", "GET", "/api/sandboxes/a1/presence", "", nil, troubled(throttled), 500},

		{"a job that succeeded", "GET", "/api/sandboxes/a1/job", "", nil, living(), 200},
		{"a job that failed", "GET", "/api/sandboxes/a1/job", "", nil, failed, 200},
		{"a job that is queued", "GET", "/api/sandboxes/a1/job", "", nil, queued, 200},
		{"a job that is none", "GET", "/api/sandboxes/a1/job", "", nil, scene{view: jobs.View{ID: "a1", Seq: 1, Malformed: errors.New("no")}}, 200},
		{"no job", "GET", "/api/sandboxes/a1/job", "", nil, scene{}, 404},
		{"no job of an impossible id", "GET", "/api/sandboxes/A/job", "", nil, scene{}, 404},
		{"no queue for a job", "GET", "/api/sandboxes/a1/job", "", nil, noQueue, 503},

		{"capabilities", "GET", "/api/capabilities", "", nil, scene{}, 200},
		{"health", "GET", "/health", "", nil, scene{}, 200},
		{"liveness", "GET", "/livez", "", nil, scene{}, 200},
		{"readiness", "GET", "/readyz", "", nil, scene{}, 200},
		{"no readiness", "GET", "/readyz", "", nil, scene{down: true}, 503},
		{"this document", "GET", "/openapi.json", "", nil, scene{}, 200},
		{"the page", "GET", "/docs", "", nil, scene{}, 200},

		{"an unknown path", "GET", "/api/unknown", "", nil, scene{}, 404},
		{"an unknown method", "PATCH", "/api/sandboxes", "", nil, scene{}, 405},
		{"a large body where none belongs", "GET", "/health", large, nil, scene{}, 413},
		{"a fault", "GET", "/api/sandboxes", "", nil, scene{panics: true}, 500},
	}
	d := loadDocument(t, true)
	for route, operation := range d.operations() {
		if operation.Security != nil {
			continue
		}
		method, pattern, _ := strings.Cut(route, " ")
		cases = append(cases, request{"no key for " + route, method, strings.ReplaceAll(pattern, "{sandbox_id}", "a1"), "",
			http.Header{"X-Api-Key": {"wrong"}}, scene{}, 401})
		cases = append(cases, request{"too many requests to " + route, method, strings.ReplaceAll(pattern, "{sandbox_id}", "a1"), "",
			nil, scene{keys: &Config{Key: testKey, RateLimit: 1e-9, RateBurst: 1}}, 429})
	}

	seen := map[string]bool{}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			req := httptest.NewRequestWithContext(t.Context(), tc.method, tc.path, strings.NewReader(tc.body))
			req.Header.Set(headerAPIKey, testKey)
			req.Header.Set("Content-Type", "application/json")
			maps.Copy(req.Header, tc.header)
			h := tc.scene.handler()
			if tc.scene.keys != nil { // one of the requests is within the limit
				h.ServeHTTP(httptest.NewRecorder(), req.Clone(t.Context()))
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, req)
			require.Equal(t, tc.want, w.Code, w.Body)
			route, err := d.validate(req, w.Result())
			require.NoError(t, err, w.Body)
			seen[fmt.Sprint(route, " ", w.Code)] = true
		})
	}
	require.ElementsMatch(t, d.replies(), slices.Collect(maps.Keys(seen)), "documented replies, and those that handlers gave")
}

// A validator that lets everything pass would make the test above worthless.
func TestAReplyThatIsNotDocumentedIsFound(t *testing.T) {
	t.Parallel()
	d := loadDocument(t, true)
	const sandboxJSON = `{"sandbox_id":"a1","sandbox_url":null,"status":"Running","ready":true}`
	for name, tc := range map[string]struct {
		path   string
		status int
		header http.Header
		body   string
		wrong  bool
	}{
		"the reply itself is fine":       {"/api/sandboxes/a1", 200, nil, sandboxJSON, false},
		"a field too many":               {"/api/sandboxes/a1", 200, nil, strings.Replace(sandboxJSON, "{", `{"x":1,`, 1), true},
		"a field too few":                {"/api/sandboxes/a1", 200, nil, strings.Replace(sandboxJSON, `"sandbox_url":null,`, "", 1), true},
		"a field of another type":        {"/api/sandboxes/a1", 200, nil, strings.Replace(sandboxJSON, "true", `"yes"`, 1), true},
		"a null that is not allowed":     {"/api/sandboxes/a1", 200, nil, strings.Replace(sandboxJSON, "true", "null", 1), true},
		"an unknown status":              {"/api/sandboxes/a1", 200, nil, strings.Replace(sandboxJSON, "Running", "Paused", 1), true},
		"a list is fine":                 {"/api/sandboxes", 200, nil, `{"count":1,"sandboxes":[` + sandboxJSON + `]}`, false},
		"a field too many inside a list": {"/api/sandboxes", 200, nil, `{"count":1,"sandboxes":[{"x":1,` + sandboxJSON[1:] + `]}`, true},
		"a field too many in an error":   {"/api/sandboxes/a1", 404, nil, `{"detail":"no","x":1}`, true},
		"a code that is not documented":  {"/api/sandboxes/a1", 418, nil, `{"detail":"no"}`, true},
		"an error that is fine":          {"/api/sandboxes/a1", 503, http.Header{"Retry-After": {"1"}}, `{"detail":"no"}`, false},
		"a header too few":               {"/api/sandboxes/a1", 503, nil, `{"detail":"no"}`, true},
		"a header of another type":       {"/api/sandboxes/a1", 503, http.Header{"Retry-After": {"soon"}}, `{"detail":"no"}`, true},
		"a header too many":              {"/api/sandboxes/a1", 404, http.Header{"Retry-After": {"1"}}, `{"detail":"no"}`, true},
		"another kind of content":        {"/api/sandboxes/a1", 404, http.Header{"Content-Type": {"text/plain"}}, `{"detail":"no"}`, true},
		"another refusal of the key":     {"/api/sandboxes/a1", 401, http.Header{"Content-Type": {"text/plain; charset=utf-8"}}, `Go away`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res := &http.Response{StatusCode: tc.status, Body: io.NopCloser(strings.NewReader(tc.body)), Header: http.Header{
				"Content-Type": {"application/json"}, "X-Request-Id": {"1"},
			}}
			maps.Copy(res.Header, tc.header)
			_, err := d.validate(httptest.NewRequestWithContext(t.Context(), http.MethodGet, tc.path, nil), res)
			require.Equal(t, tc.wrong, err != nil, "%v", err)
		})
	}
}

func TestEveryRouteIsDocumented(t *testing.T) {
	t.Parallel()
	routes := map[string]bool{}
	for _, r := range new(scene).handler().Routes() {
		// The empty id has a route of its own.
		p := strings.Replace(path.Clean(strings.Replace(r.Path+"/", "sandboxes//", "sandboxes/:id/", 1)), ":id", "{sandbox_id}", 1)
		if r.Path == "/api/sandboxes" {
			p = r.Path
		}
		routes[r.Method+" "+p] = true
	}
	require.ElementsMatch(t,
		slices.Collect(maps.Keys(loadDocument(t, false).operations())), slices.Collect(maps.Keys(routes)))
}

func TestDocumentedSecurityIsThatOfTheRoutes(t *testing.T) {
	t.Parallel()
	for route, operation := range loadDocument(t, false).operations() {
		method, p, _ := strings.Cut(route, " ")
		w := httptest.NewRecorder()
		new(scene).handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, p, nil))
		require.Equal(t, operation.Security == nil, w.Code == http.StatusUnauthorized, route)
	}
}

func TestReplyFieldsAreDocumented(t *testing.T) {
	t.Parallel()
	schemas := map[string]any{
		"Sandbox": sandboxReply{}, "List": listReply{}, "Deleted": deleteReply{}, "Presence": presenceReply{},
		"Capabilities": capabilitiesReply{}, "Job": jobReply{}, "Missing": missingReply{}, "FieldError": fieldError{},
	}
	d := loadDocument(t, false)
	var covered []string
	for name, v := range schemas {
		required, optional := jsonFields(reflect.TypeOf(v))
		schema := d.doc.Components.Schemas[name].Value
		require.ElementsMatch(t, slices.Collect(maps.Keys(schema.Properties)), slices.Concat(required, optional), name)
		require.ElementsMatch(t, schema.Required, required, "required fields of %s", name)
		covered = append(covered, reflect.TypeOf(v).Name())
	}
	require.Subset(t, covered, typesOf(t, "wire.go"))
}

func TestRequestFieldsAreDocumented(t *testing.T) {
	t.Parallel()
	d := loadDocument(t, false)
	source, err := os.ReadFile("request.go")
	require.NoError(t, err)
	for name, pattern := range map[string]string{
		"CreateRequest": `(?:\bo\.(?:text|textOr|boolean|integer)\(|decodeMounts\(o, )"([a-z_]+)"`,
		"Mount":         `\bitem\.(?:text|textOr|boolean|integer)\("([a-z_]+)"`,
	} {
		var read []string
		for _, match := range regexp.MustCompile(pattern).FindAllSubmatch(source, -1) {
			read = append(read, string(match[1]))
		}
		require.ElementsMatch(t, slices.Collect(maps.Keys(d.doc.Components.Schemas[name].Value.Properties)), read, name)
	}
	for name, property := range d.doc.Components.Schemas["CreateRequest"].Value.Properties {
		_, errs := decodeCreate(fmt.Appendf(nil, `{"sandbox_id":"a1",%q:{}}`, name))
		require.NotEmpty(t, errs, "%s is read", name)
		if name == "sandbox_id" {
			continue
		}
		// The default may as well be sent.
		value, err := json.Marshal(property.Value.Default)
		require.NoError(t, err)
		sent, errs := decodeCreate(fmt.Appendf(nil, `{"sandbox_id":"a1",%q:%s}`, name, value))
		require.Empty(t, errs, name)
		absent, _ := decodeCreate([]byte(`{"sandbox_id":"a1"}`))
		require.Equal(t, absent.Spec.Hash(), sent.Spec.Hash(), "the default of %s", name)
	}
}

func TestEnumsAreDocumented(t *testing.T) {
	t.Parallel()
	d := loadDocument(t, false)
	for _, tc := range []struct {
		schema, field, file, typ string
		also                     []any
	}{
		{"Sandbox", "status", "../sandbox/state.go", "Status", nil},
		{"Job", "state", "../jobs/outcome.go", "State", nil},
		{"Job", "op", "../jobs/intent.go", "Op", []any{""}},
		{"Job", "reason", "../sandbox/failure.go", "Reason", nil},
	} {
		require.ElementsMatch(t, d.doc.Components.Schemas[tc.schema].Value.Properties[tc.field].Value.Enum,
			append(constantsOf(t, tc.file, tc.typ), tc.also...), "%s.%s", tc.schema, tc.field)
	}
}

func TestClientKnowsWhatIsDocumented(t *testing.T) {
	t.Parallel()
	d := loadDocument(t, false)
	for name, v := range map[string]any{
		"CreateRequest": client.CreateRequest{}, "Mount": client.Mount{}, "Sandbox": client.Sandbox{}, "Job": client.Job{},
		"Presence": client.Presence{}, "Capabilities": client.Capabilities{}, "FieldError": client.FieldError{},
	} {
		required, optional := jsonFields(reflect.TypeOf(v))
		require.ElementsMatch(t, slices.Collect(maps.Keys(d.doc.Components.Schemas[name].Value.Properties)),
			slices.Concat(required, optional), name)
	}
}

// Each example of a 422 is named by its type, and its summary is the body that gets it.
func TestDocumentedRefusalsHappen(t *testing.T) {
	t.Parallel()
	d := loadDocument(t, false)
	examples := d.doc.Paths.Value("/api/sandboxes").Post.Responses.Status(422).Value.Content["application/json"].Examples
	// No parser holds the number that would have to be echoed here.
	types := []any{"finite_number"}
	for name, example := range examples {
		types = append(types, name)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := example.Value.Summary
			want, err := json.Marshal(example.Value.Value)
			require.NoError(t, err)
			w := postCreate(t, body)
			require.Equal(t, http.StatusUnprocessableEntity, w.Code)
			require.JSONEq(t, string(want), w.Body.String())
			require.Contains(t, w.Body.String(), `"type":"`+name+`"`)
			if name != "string_unicode" { // which no schema can say
				require.Error(t, d.validateCreate(t, body), "the document refuses it as well")
			}
		})
	}
	require.ElementsMatch(t, types, d.doc.Components.Schemas["FieldError"].Value.Properties["type"].Value.Enum)
	w := postCreate(t, `{"sandbox_id":"a1","max_shell_sessions":1e400}`)
	require.Contains(t, w.Body.String(), `"type":"finite_number"`)
}

func TestDocumentAndDecoderAcceptTheSame(t *testing.T) {
	t.Parallel()
	text := strings.Repeat
	with := func(field, value string) string { return `{"sandbox_id":"a1","` + field + `":` + value + `}` }
	mount := func(fields string) string { return with("extra_mounts", "[{"+fields+"}]") }
	bodies := map[string]bool{
		`{"sandbox_id":"a1"}`:                                   true,
		`{"sandbox_id":"a1","unknown":{}}`:                      true,
		`{"sandbox_id":"` + text("a", 51) + `"}`:                true,
		`{"sandbox_id":"` + text("a", 52) + `"}`:                false,
		`{"sandbox_id":"-a"}`:                                   false,
		`{"sandbox_id":"a-"}`:                                   false,
		`{"sandbox_id":"é"}`:                                    false,
		`{"sandbox_id":"a\n"}`:                                  false,
		`{"sandbox_id":""}`:                                     false,
		`{"sandbox_id":null}`:                                   false,
		`null`:                                                  false,
		with("thread_id", "null"):                               true,
		with("thread_id", `"`+text("T", 64)+`"`):                true,
		with("thread_id", `"`+text("T", 65)+`"`):                false,
		with("user_id", `"-U_1"`):                               true,
		with("user_id", `"a/b"`):                                false,
		with("user_id", `""`):                                   false,
		with("user_id", "null"):                                 false,
		with("user_id", `"`+text("u", 255)+`"`):                 true,
		with("user_id", `"`+text("u", 256)+`"`):                 false,
		with("extra_mounts", "[]"):                              true,
		with("extra_mounts", "{}"):                              false,
		with("extra_mounts", "[[]]"):                            false,
		mount(`"host_path":"/.deer-flow/a"`):                    false,
		mount(`"host_path":1,"container_path":"/a"`):            false,
		with("include_legacy_skills", "true"):                   true,
		with("skills_container_path", `"/opt"`):                 true,
		with("skills_container_path", `"/"`):                    false,
		with("max_shell_sessions", "null"):                      true,
		with("max_shell_sessions", "2147483647"):                true,
		with("max_shell_sessions", "2147483648"):                false,
		with("max_shell_sessions", "0"):                         false,
		with("max_shell_sessions", "1.5"):                       false,
		with("provision_lark_cli_runtime", "false"):             true,
		with("provision_lark_cli_broker", `[]`):                 false,
		with("skills_container_path", `"/`+text("a", 4095)+`"`): true,
		with("skills_container_path", `"/`+text("a", 4096)+`"`): false,
		mount(`"host_path":"/.deer-flow/a","container_path":"/mnt/acp-workspace","read_only":true`): true,
	}
	d := loadDocument(t, false)
	for _, example := range d.doc.Paths.Value("/api/sandboxes").Post.RequestBody.Value.Content["application/json"].Examples {
		body, err := json.Marshal(example.Value.Value)
		require.NoError(t, err)
		bodies[string(body)] = true
	}
	for body, want := range bodies {
		require.Equal(t, want, d.validateCreate(t, body) == nil, "the document on %.120s: %v", body, d.validateCreate(t, body))
		w := postCreate(t, body)
		require.Equal(t, want, w.Code == http.StatusOK, "the decoder on %.120s: %s", body, w.Body)
	}
}

func postCreate(t *testing.T, body string) *httptest.ResponseRecorder {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/sandboxes", strings.NewReader(body))
	req.Header.Set(headerAPIKey, testKey)
	w := httptest.NewRecorder()
	s := living()
	s.handler().ServeHTTP(w, req)
	return w
}

func TestPageLoadsNothingAndRunsOnlyItsOwnScript(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	new(scene).handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/docs", nil))
	page := w.Body.String()
	require.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"))
	d, err := loadDocs()
	require.NoError(t, err)
	require.NotContains(t, string(d.document), "<")
	require.Contains(t, page, `<script type="application/json" id="document">`+string(d.document)+"</script>")
	foreign := regexp.MustCompile(`(?i)\ssrc=|<link|@import|\burl\(|<[^>]+\s(?:on[a-z]+|style)=|innerHTML|fetch\(`)
	require.Empty(t, foreign.FindString(string(docsHTML)))

	policy := w.Header().Get("Content-Security-Policy")
	require.Contains(t, policy, "default-src 'none'")
	require.NotContains(t, policy, "unsafe")
	require.Equal(t, 2, strings.Count(policy, "'sha256-"))
	require.Contains(t, policy, "style-src "+hashOf("style"))
	require.Contains(t, policy, "script-src "+hashOf("script"))
	require.NotEqual(t, hashOf("style"), hashOf("nothing"), "an element was found")
	require.NotEqual(t, hashOf("script"), hashOf("nothing"), "an element was found")
}

// A document is the description of the interface, ready to judge replies.
type document struct {
	doc    *openapi3.T
	router routers.Router
	// common are the replies that any request may get.
	common *openapi3.Responses
}

// loadDocument reads what /openapi.json serves. With closed set, fields that are not documented are not allowed, which
// clients must not rely on and we must hold to.
func loadDocument(t *testing.T, closed bool) document {
	t.Helper()
	openapi3filter.RegisterBodyDecoder("text/html", openapi3filter.PlainBodyDecoder) // of which it is enough that it is text
	w := httptest.NewRecorder()
	new(scene).handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/openapi.json", nil))
	var raw map[string]any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &raw))
	if closed {
		for _, schema := range raw["components"].(map[string]any)["schemas"].(map[string]any) {
			schema.(map[string]any)["additionalProperties"] = false
		}
	}
	data, err := json.Marshal(raw)
	require.NoError(t, err)

	d := document{common: openapi3.NewResponsesWithCapacity(4)}
	d.doc, err = openapi3.NewLoader().LoadFromData(data)
	require.NoError(t, err)
	require.True(t, d.doc.IsOpenAPI31OrLater())
	require.NoError(t, d.doc.Validate(t.Context(), openapi3.EnableExamplesValidation()))
	d.router, err = gorillamux.NewRouter(d.doc)
	require.NoError(t, err)
	for code, ref := range raw["x-common-responses"].(map[string]any) {
		name := path.Base(ref.(map[string]any)["$ref"].(string))
		require.Contains(t, d.doc.Components.Responses, name)
		d.common.Set(code, d.doc.Components.Responses[name])
	}
	return d
}

// operations by method and path.
func (d document) operations() map[string]*openapi3.Operation {
	found := map[string]*openapi3.Operation{}
	for p, item := range d.doc.Paths.Map() {
		for method, operation := range item.Operations() {
			found[method+" "+p] = operation
		}
	}
	return found
}

// replies are all that are documented, as method, path and code; for those of any request only the code.
func (d document) replies() []string {
	var all []string
	for route, operation := range d.operations() {
		for code := range operation.Responses.Map() {
			all = append(all, route+" "+code)
		}
	}
	for code := range d.common.Map() {
		all = append(all, "* "+code)
	}
	return all
}

// validate judges a reply, and returns the method and the path that it is documented at.
func (d document) validate(req *http.Request, res *http.Response) (string, error) {
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return "", err
	}
	route, name := d.route(req, res.StatusCode, string(body))
	input := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: req, Route: route},
		Status:                 res.StatusCode, Header: res.Header,
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	}
	if err := openapi3filter.ValidateResponse(req.Context(), input.SetBodyBytes(body)); err != nil {
		return "", err
	}
	documented := route.Operation.Responses.Status(res.StatusCode).Value.Headers
	for _, header := range []string{"Allow", "Content-Security-Policy", "Location", "Preference-Applied",
		"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset", "Retry-After", "X-Request-Id",
	} {
		if _, ok := documented[header]; !ok && res.Header.Get(header) != "" {
			return "", fmt.Errorf("header %s is not documented", header)
		}
	}
	return name, nil
}

// route finds where a reply is documented: at its operation, or among the common ones.
func (d document) route(req *http.Request, status int, body string) (*routers.Route, string) {
	found := req.Clone(req.Context())
	if strings.HasSuffix(found.URL.Path, "sandboxes/") {
		found.URL.Path += "empty" // a path parameter has at least one character in OpenAPI
	}
	route, _, err := d.router.FindRoute(found)
	documented := err == nil && route.Operation.Responses.Status(status) != nil
	if !documented && d.common.Status(status) != nil || body == `{"detail":"Internal Server Error"}` {
		return &routers.Route{Spec: d.doc, Operation: &openapi3.Operation{Responses: d.common}}, "*"
	}
	if err != nil {
		return &routers.Route{Spec: d.doc, Operation: &openapi3.Operation{Responses: d.common}}, "?"
	}
	return route, route.Method + " " + route.Path
}

// validateCreate judges the body of a create.
func (d document) validateCreate(t *testing.T, body string) error {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/sandboxes", bytes.NewReader([]byte(body)))
	req.Header.Set("Content-Type", "application/json")
	route, params, err := d.router.FindRoute(req)
	require.NoError(t, err)
	return openapi3filter.ValidateRequest(t.Context(), &openapi3filter.RequestValidationInput{
		Request: req, Route: route, PathParams: params,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, SkipSettingDefaults: true},
	})
}

// jsonFields are the names of the fields of a struct in JSON: those that are always there, and those that may be left out.
func jsonFields(typ reflect.Type) (required, optional []string) {
	for field := range typ.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case options == "":
			required = append(required, name)
		default:
			optional = append(optional, name)
		}
	}
	return required, optional
}

func typesOf(t *testing.T, file string) []string {
	t.Helper()
	var names []string
	for _, decl := range parse(t, file).Decls {
		if gen, ok := decl.(*ast.GenDecl); ok && gen.Tok == token.TYPE {
			for _, spec := range gen.Specs {
				names = append(names, spec.(*ast.TypeSpec).Name.Name)
			}
		}
	}
	require.NotEmpty(t, names)
	return names
}

// constantsOf are the values of the string constants of a type.
func constantsOf(t *testing.T, file, typ string) []any {
	t.Helper()
	var values []any
	ast.Inspect(parse(t, file), func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if name, ok := spec.Type.(*ast.Ident); ok && name.Name == typ && len(spec.Values) == 1 {
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			values = append(values, value)
		}
		return true
	})
	require.NotEmpty(t, values)
	return values
}

func parse(t *testing.T, file string) *ast.File {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	return parsed
}
