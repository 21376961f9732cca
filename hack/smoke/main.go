// Command smoke starts the product on free ports and plays a gateway's day over HTTP: see make smoke. Its last line is
// "smoke: N passed, M failed"; it exits with 1 if anything failed.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"sandbox-provisioner/hack/stack"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	failed, err := run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "smoke:", err)
	}
	if err != nil || failed > 0 {
		os.Exit(1)
	}
}

func run(ctx context.Context) (failed int, err error) {
	addr, err := stack.FreeAddr()
	if err != nil {
		return 0, err
	}
	var log bytes.Buffer
	s, err := stack.Start(ctx, stack.Options{
		Kubeconfig: os.Getenv("KUBECONFIG"), Addr: addr, Log: &log, Progress: os.Stderr,
	})
	if err != nil {
		return 0, err
	}
	defer s.Stop()
	t := &tester{ctx: ctx, url: s.URL, key: s.Key}
	day(t)
	if t.failed > 0 {
		fmt.Fprintf(os.Stderr, "\nlog of standalone:\n%s\n", log.String())
	}
	fmt.Printf("smoke: %d passed, %d failed\n", t.passed, t.failed)
	return t.failed, nil
}

// day is what a gateway does from morning to evening.
func day(t *tester) {
	const id, sandboxes = "smoke-1", "/api/sandboxes"
	one := sandboxes + "/" + id

	t.check("health is open", t.call("GET", "/health", "", anonymous), http.StatusOK, `{"status":"ok"}`)
	t.check("the parts are ready", t.call("GET", "/readyz", "", anonymous), http.StatusOK)
	t.check("capabilities are told", t.call("GET", "/api/capabilities", ""), http.StatusOK, `"lark_cli_init_image":false`)

	t.check("no key is refused", t.call("GET", sandboxes, "", anonymous), http.StatusUnauthorized, "Unauthorized")
	t.check("a wrong key is refused", t.call("GET", sandboxes, "", header{"X-API-Key", "wrong"}), http.StatusUnauthorized)
	t.check("an unknown path needs a key first", t.call("GET", "/api/unknown", "", anonymous), http.StatusUnauthorized)
	t.check("an unknown path is not found", t.call("GET", "/api/unknown", ""), http.StatusNotFound, `{"detail":"Not Found"}`)
	t.check("a wrong method is refused", t.call("PATCH", sandboxes, ""), http.StatusMethodNotAllowed)

	created := t.call("POST", sandboxes, `{"sandbox_id":"`+id+`","thread_id":null,"extra_mounts":[]}`)
	t.check("a create answers with a URL", created, http.StatusOK, `"sandbox_url":"http://127.0.0.1:`, `"max_shell_sessions":10`)
	url := created.text("sandbox_url")
	t.check("a repeated create gives the same URL", t.call("POST", sandboxes, `{"sandbox_id":"`+id+`"}`),
		http.StatusOK, `"sandbox_url":"`+url+`"`)
	t.eventually("the sandbox runs", func() answer { return t.call("GET", one, "") }, http.StatusOK, `"status":"Running"`, `"ready":true`)
	t.eventually("its URL answers", func() answer { return t.get(url + "/v1/sandbox") }, http.StatusOK)
	t.check("the list has it", t.call("GET", sandboxes, ""), http.StatusOK, `"sandbox_id":"`+id+`"`, `"count":1`)
	t.check("it is present", t.call("GET", one+"/presence", ""), http.StatusOK, `"exists":true`)
	t.check("its job succeeded", t.call("GET", one+"/job", ""), http.StatusOK, `"state":"succeeded"`, `"op":"present"`)
	t.check("more capacity than it has is refused",
		t.call("POST", sandboxes, `{"sandbox_id":"`+id+`","max_shell_sessions":99}`), http.StatusConflict, "capacity")

	uid := t.call("GET", one+"/presence", "").text("container_id")
	t.check("a delete is answered", t.call("DELETE", one, ""), http.StatusOK, `"ok":true`)
	t.check("then it is not found", t.call("GET", one, ""), http.StatusNotFound, "not found")
	t.check("a second delete is answered the same", t.call("DELETE", one, ""), http.StatusOK, `"ok":true`)
	t.check("a create right after the delete succeeds", t.call("POST", sandboxes, `{"sandbox_id":"`+id+`"}`), http.StatusOK)
	t.eventually("the new one runs", func() answer { return t.call("GET", one, "") }, http.StatusOK, `"status":"Running"`)
	again := t.call("GET", one+"/presence", "")
	t.that("it is not the old one", again.text("container_id") != "" && again.text("container_id") != uid, again)
	t.check("it is deleted", t.call("DELETE", one, ""), http.StatusOK)

	async := t.call("POST", sandboxes, `{"sandbox_id":"smoke-2"}`, header{"Prefer", "respond-async"})
	t.check("an asynchronous create is accepted", async, http.StatusAccepted, `"sandbox_url":null`)
	t.that("and says where to look", async.header.Get("Location") == sandboxes+"/smoke-2", async)
	t.eventually("it is carried out", func() answer { return t.call("GET", sandboxes+"/smoke-2", "") }, http.StatusOK, `"status":"Running"`)
	t.check("an asynchronous delete is accepted",
		t.call("DELETE", sandboxes+"/smoke-2", "", header{"Prefer", "respond-async"}), http.StatusAccepted)
	t.eventually("it goes", func() answer { return t.call("GET", sandboxes+"/smoke-2", "") }, http.StatusNotFound)

	for _, bad := range []string{`A_b`, `-x`, `x-`, `a.b`, ``, `../x`, `é`, `abc\n`, strings.Repeat("a", 52)} {
		t.check(fmt.Sprintf("the id %q is refused", bad), t.call("POST", sandboxes, `{"sandbox_id":"`+bad+`"}`),
			http.StatusUnprocessableEntity, `"loc":["body","sandbox_id"]`)
	}
	t.check("a body that is not JSON is refused", t.call("POST", sandboxes, `{`), http.StatusUnprocessableEntity, `"json_invalid"`)
	t.check("a mount from outside is refused", t.call("POST", sandboxes,
		`{"sandbox_id":"smoke-3","extra_mounts":[{"host_path":"/etc","container_path":"/mnt/skills/custom"}]}`),
		http.StatusBadRequest, "outside DeerFlow state")
	t.check("nothing is left in the evening", t.call("GET", sandboxes, ""), http.StatusOK, `"count":0`)
}

type tester struct {
	ctx            context.Context
	url, key       string
	passed, failed int
}

type header struct{ name, value string }

// anonymous sends no key.
var anonymous = header{name: "X-API-Key"}

// An answer is what came back, or why nothing did.
type answer struct {
	status int
	body   string
	header http.Header
	err    error
}

// text is a string in the body.
func (a answer) text(field string) string {
	var fields map[string]any
	if json.Unmarshal([]byte(a.body), &fields) != nil {
		return ""
	}
	s, _ := fields[field].(string)
	return s
}

func (a answer) String() string {
	if a.err != nil {
		return a.err.Error()
	}
	return fmt.Sprintf("%d %s", a.status, a.body)
}

func (t *tester) call(method, path, body string, headers ...header) answer {
	return t.do(method, t.url+path, body, append([]header{{"X-API-Key", t.key}}, headers...)...)
}

func (t *tester) get(url string) answer { return t.do(http.MethodGet, url, "") }

func (t *tester) do(method, url, body string, headers ...header) answer {
	ctx, cancel := context.WithTimeout(t.ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	for _, h := range headers {
		req.Header.Set(h.name, h.value)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return answer{status: res.StatusCode, body: string(b), header: res.Header, err: err}
}

// check wants a status, and all the texts in the body.
func (t *tester) check(name string, a answer, status int, texts ...string) {
	t.that(name, a.is(status, texts), a)
}

func (a answer) is(status int, texts []string) bool {
	ok := a.err == nil && a.status == status
	for _, text := range texts {
		ok = ok && strings.Contains(a.body, text)
	}
	return ok
}

// eventually asks until it gets what check would want, for at most half a minute.
func (t *tester) eventually(name string, ask func() answer, status int, texts ...string) {
	deadline := time.Now().Add(30 * time.Second)
	a := ask()
	for !a.is(status, texts) && time.Now().Before(deadline) && t.ctx.Err() == nil {
		time.Sleep(50 * time.Millisecond)
		a = ask()
	}
	t.that(name, a.is(status, texts), a)
}

func (t *tester) that(name string, ok bool, a answer) {
	if ok {
		t.passed++
		fmt.Printf("ok    %s\n", name)
		return
	}
	t.failed++
	fmt.Printf("FAIL  %s: %s\n", name, a)
}
