// Command smoke starts the product on free ports and plays a gateway's day over HTTP: see make smoke. Its last line is
// "smoke: N passed, M failed"; it exits with 1 if anything failed.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"sandbox-provisioner/client"
	"sandbox-provisioner/hack/stack"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	failed, err := run(ctx)
	stop()
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
	day(t, client.New(s.URL, s.Key, client.WithPollInterval(50*time.Millisecond)))
	if t.failed > 0 {
		fmt.Fprintf(os.Stderr, "\nlog of standalone:\n%s\n", log.String())
	}
	fmt.Printf("smoke: %d passed, %d failed\n", t.passed, t.failed)
	return t.failed, nil
}

// day is what a gateway does from morning to evening. What no decent client would send is sent by hand.
func day(t *tester, c *client.Client) {
	morning(t, c)
	work(t, c)
	haste(t, c)
	refusals(t, c)
	t.check("nothing is left in the evening", t.call("GET", sandboxes, ""), http.StatusOK, `{"sandboxes":[],"count":0}`)
}

const sandboxes = "/api/sandboxes"

// morning is whether everybody is there, and the door is locked.
func morning(t *tester, c *client.Client) {
	t.check("health is open", t.call("GET", "/health", "", anonymous), http.StatusOK, `{"status":"ok"}`)
	t.succeeds("the parts are ready", c.Ready(t.ctx))
	t.check("the interface is described", t.call("GET", "/openapi.json", "", anonymous), http.StatusOK, `"openapi":"3.1.0"`)
	t.check("also for people", t.call("GET", "/docs", "", anonymous), http.StatusOK, "<!doctype html>")
	capabilities, err := c.Capabilities(t.ctx)
	t.that("capabilities are told", err == nil && !capabilities.LarkRuntime && !capabilities.LarkBroker, capabilities, err)

	t.fails("no key is refused", client.New(t.url, "").Delete(t.ctx, "smoke-1"), client.ErrUnauthorized)
	t.check("in plain text", t.call("GET", sandboxes, "", anonymous), http.StatusUnauthorized, "Unauthorized")
	t.fails("a wrong key is refused", client.New(t.url, "wrong").Delete(t.ctx, "smoke-1"), client.ErrUnauthorized)
	t.check("an unknown path needs a key first", t.call("GET", "/api/unknown", "", anonymous), http.StatusUnauthorized)
	t.check("an unknown path is not found", t.call("GET", "/api/unknown", ""), http.StatusNotFound, `{"detail":"Not Found"}`)
	t.check("a wrong method is refused", t.call("PATCH", sandboxes, ""), http.StatusMethodNotAllowed)
}

// work is one sandbox from its creation to its end.
func work(t *tester, c *client.Client) {
	const id = "smoke-1"
	t.check("a create answers with what the gateway needs",
		t.call("POST", sandboxes, `{"sandbox_id":"`+id+`","thread_id":null,"extra_mounts":[]}`),
		http.StatusOK, `"sandbox_url":"http://127.0.0.1:`, `"max_shell_sessions":10`)
	created, err := c.Create(t.ctx, client.CreateRequest{SandboxID: id})
	t.that("a repeated create gets it again", err == nil && created.URL != "" && !created.Queued, created, err)
	if err != nil {
		return // the rest would only say the same
	}
	ready := t.becomesReady(c, id)
	t.that("its URL is still the same", ready.URL == created.URL, ready)
	t.eventually("its URL answers", func() answer { return t.do(http.MethodGet, ready.URL+"/v1/sandbox", "") }, http.StatusOK)
	var listed []*client.Sandbox
	for s, err := range c.List(t.ctx) {
		t.succeeds("a sandbox is listed", err)
		listed = append(listed, s)
	}
	t.that("it is the only one", len(listed) == 1 && listed[0].ID == id, listed)
	first := t.podOf(c, id)
	job, err := c.Job(t.ctx, id)
	t.that("its job succeeded", err == nil && job.Op == client.Present && job.State == client.JobSucceeded, job, err)
	_, err = c.Create(t.ctx, client.CreateRequest{SandboxID: id, MaxShellSessions: 99})
	t.fails("more capacity than it has is refused", err, client.ErrCapacity)

	t.check("a delete is answered", t.call("DELETE", sandboxes+"/"+id, ""), http.StatusOK, `{"ok":true,"sandbox_id":"`+id+`"}`)
	_, err = c.Get(t.ctx, id)
	t.fails("then it is not found", err, client.ErrNotFound)
	t.succeeds("a second delete is answered the same", c.Delete(t.ctx, id))
	_, err = c.Create(t.ctx, client.CreateRequest{SandboxID: id})
	t.succeeds("a create right after the delete succeeds", err)
	t.becomesReady(c, id)
	t.that("it is not the old one", t.podOf(c, id) != first, first)
	t.succeeds("it is deleted", c.Delete(t.ctx, id))
}

// haste is a sandbox for which nobody waits.
func haste(t *tester, c *client.Client) {
	const id = "smoke-2"
	async := t.call("POST", sandboxes, `{"sandbox_id":"`+id+`"}`, header{"Prefer", "respond-async"})
	t.check("an asynchronous create is accepted", async, http.StatusAccepted, `"sandbox_url":null`)
	t.that("and says where to look", async.header.Get("Location") == sandboxes+"/"+id, async)
	t.becomesReady(c, id)
	t.succeeds("an asynchronous delete is accepted", c.Delete(t.ctx, id, client.RespondAsync()))
	t.within("it goes", func(ctx context.Context) error { return c.WaitGone(ctx, id) })
	_, err := c.WaitReady(t.ctx, id)
	t.fails("nobody waits for what is gone", err, client.ErrFailed)
}

// refusals are requests that must not leave anything behind.
func refusals(t *tester, c *client.Client) {
	for _, bad := range []string{`A_b`, `-x`, `x-`, `a.b`, ``, `../x`, `é`, `abc\n`, strings.Repeat("a", 52)} {
		t.check(fmt.Sprintf("the id %q is refused", bad), t.call("POST", sandboxes, `{"sandbox_id":"`+bad+`"}`),
			http.StatusUnprocessableEntity, `"loc":["body","sandbox_id"]`)
	}
	t.check("a body that is not JSON is refused", t.call("POST", sandboxes, `{`), http.StatusUnprocessableEntity, `"json_invalid"`)
	_, err := c.Create(t.ctx, client.CreateRequest{SandboxID: "smoke-3", ExtraMounts: []client.Mount{
		{HostPath: "/etc", ContainerPath: "/mnt/skills/custom"},
	}})
	t.fails("a mount from outside is refused", err, client.ErrInvalid)
	_, err = c.Get(t.ctx, "../x")
	t.fails("what cannot exist is not found", err, client.ErrNotFound)
	t.succeeds("and can be deleted", c.Delete(t.ctx, "../x"))
}

type tester struct {
	ctx            context.Context
	url, key       string
	passed, failed int
}

// patience is how long anything may take that is not answered at once.
const patience = 30 * time.Second

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

func (a answer) String() string {
	if a.err != nil {
		return a.err.Error()
	}
	return fmt.Sprintf("%d %s", a.status, a.body)
}

func (t *tester) call(method, path, body string, headers ...header) answer {
	return t.do(method, t.url+path, body, append([]header{{"X-API-Key", t.key}}, headers...)...)
}

func (t *tester) do(method, url, body string, headers ...header) answer {
	ctx, cancel := context.WithTimeout(t.ctx, patience)
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

// eventually asks until it gets what check would want, or patience ends.
func (t *tester) eventually(name string, ask func() answer, status int, texts ...string) {
	deadline := time.Now().Add(patience)
	a := ask()
	for !a.is(status, texts) && time.Now().Before(deadline) && t.ctx.Err() == nil {
		time.Sleep(50 * time.Millisecond)
		a = ask()
	}
	t.that(name, a.is(status, texts), a)
}

// within wants do to succeed before patience ends.
func (t *tester) within(name string, do func(context.Context) error) {
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	t.succeeds(name, do(ctx))
}

// becomesReady waits for a sandbox to run, and returns it.
func (t *tester) becomesReady(c *client.Client, id string) *client.Sandbox {
	found := &client.Sandbox{}
	t.within(id+" becomes ready", func(ctx context.Context) error {
		s, err := c.WaitReady(ctx, id)
		if err == nil {
			found = s
		}
		return err
	})
	t.that(id+" runs", found.Status == client.Running, found)
	return found
}

// podOf wants a Pod, and tells which.
func (t *tester) podOf(c *client.Client, id string) (uid string) {
	p, err := c.Presence(t.ctx, id)
	t.that(id+" is present", err == nil && p.Exists, p, err)
	if err == nil {
		uid = p.PodUID
	}
	return uid
}

func (t *tester) succeeds(name string, err error) { t.that(name, err == nil, err) }

// fails wants an error of that kind.
func (t *tester) fails(name string, err, kind error) { t.that(name, errors.Is(err, kind), err) }

// that counts a check, and shows what it saw when it failed.
func (t *tester) that(name string, ok bool, saw ...any) {
	if ok {
		t.passed++
		fmt.Printf("ok    %s\n", name)
		return
	}
	t.failed++
	fmt.Printf("FAIL  %s:", name)
	for _, v := range saw {
		fmt.Printf(" %+v", v)
	}
	fmt.Println()
}
