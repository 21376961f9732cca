package control_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"sandbox-provisioner/hack/devcluster/internal/control"
	"sandbox-provisioner/hack/devcluster/internal/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type noSandboxes struct{}

func (noSandboxes) ServeService(w http.ResponseWriter, _ *http.Request, namespace, name, path string) {
	_, _ = io.WriteString(w, namespace+" "+name+" "+path)
}

func TestFaultsArePutListedAndCleared(t *testing.T) {
	t.Parallel()
	handler := control.Handler(fault.NewRegistry(), noSandboxes{})
	for _, step := range []struct {
		method, path, body string
		code               int
		answer             string
	}{
		{"GET", "/healthz", "", 200, "ok"},
		{"GET", "/faults", "", 200, `{"faults":[]}`},
		{"PUT", "/faults/ns/a", `{"fault":"image-pull-error","message":"m","delay":"2s"}`, 200,
			`{"namespace":"ns","pod":"a","fault":"image-pull-error","message":"m","delay":"2s"}`},
		{"PUT", "/faults/ns/*", `{"fault":"oom"}`, 200, `{"namespace":"ns","pod":"*","fault":"oom"}`},
		{"PUT", "/faults/ns/b", `{"fault":"coffee"}`, 400, `unknown fault`},
		{"PUT", "/faults/ns/b", `fault`, 400, `error`},
		{"PUT", "/faults/ns/b", ``, 400, `no body`},
		{"GET", "/faults", "", 200, `{"faults":[{"namespace":"ns","pod":"*","fault":"oom"},` +
			`{"namespace":"ns","pod":"a","fault":"image-pull-error","message":"m","delay":"2s"}]}`},
		{"DELETE", "/faults/ns/*", "", 204, ""},
		{"DELETE", "/faults/ns/unknown", "", 204, ""},
		{"GET", "/faults", "", 200, `{"faults":[{"namespace":"ns","pod":"a",`},
		{"DELETE", "/faults", "", 204, ""},
		{"GET", "/faults", "", 200, `{"faults":[]}`},
		{"GET", "/stub/ns/a-svc/v1/sandbox", "", 200, "ns a-svc /v1/sandbox"},
	} {
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequest(step.method, step.path, strings.NewReader(step.body)))
		if recorder.Code != step.code || !strings.Contains(recorder.Body.String(), step.answer) {
			t.Errorf("%s %s: wanted %d %s, got %d %s", step.method, step.path, step.code, step.answer,
				recorder.Code, recorder.Body)
		}
	}
}
