package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sandbox-provisioner/internal/sandbox"
)

// A client is one gateway. It often asks about an id that another one is asking about.
type client struct {
	p    *plant
	b    *book
	plan *rand.Rand // what to ask: does not depend on answers
	whim *rand.Rand // what to do about an answer
	http *http.Client
}

func newClient(p *plant, b *book, o options, n int) *client {
	// Longer than the API takes, and than it is ever frozen: no answer means that the process has died.
	return &client{p: p, b: b, plan: o.stream(clientStream + n), whim: o.stream(whimStream + n), http: &http.Client{Timeout: 45 * time.Second}}
}

// hot ids are asked about by many at once.
const hot = 10

func (c *client) work(ctx context.Context) {
	for ctx.Err() == nil {
		r := c.b.records[c.plan.IntN(ids)]
		if c.plan.IntN(4) == 0 {
			r = c.b.records[c.plan.IntN(hot)]
		}
		for range 1 + c.plan.IntN(5) {
			step, ask := c.plan.IntN(100), c.draw()
			pause(ctx, time.Duration(c.plan.IntN(30))*time.Millisecond)
			if ctx.Err() != nil {
				return
			}
			c.step(ctx, r, step, ask)
		}
	}
}

// An ask is how a request is made.
type ask struct {
	api      int
	prefer   string
	sessions int
	twin     bool
}

func (c *client) draw() ask {
	a := ask{api: c.plan.IntN(apis)}
	switch c.plan.IntN(12) {
	case 0, 1, 2:
		a.prefer = "respond-async"
	case 3:
		a.prefer = "wait=1"
	}
	switch c.plan.IntN(12) {
	case 0:
		a.sessions = 5
	case 1:
		a.sessions = 15
	}
	a.twin = c.plan.IntN(10) == 0
	return a
}

func (c *client) step(ctx context.Context, r *record, step int, a ask) {
	switch {
	case step < 35:
		c.insist(ctx, r, create, a)
	case step < 52:
		c.insist(ctx, r, remove, a)
	case step < 62:
		c.renew(ctx, r, a)
	case step < 75:
		c.read(r, a)
	case step < 82:
		c.presence(r, a)
	case step < 86:
		c.job(r, a)
	case step < 89:
		c.list(a)
	default:
		c.look(ctx, r)
	}
}

// insist sends a create or a delete, sometimes twice at once, and often repeats it when the answer does not tell.
func (c *client) insist(ctx context.Context, r *record, k kind, a ask) {
	var twin sync.WaitGroup
	if a.twin {
		other := a
		other.api = (a.api + 1) % apis
		twin.Go(func() { c.mutate(r, k, other) })
	}
	class := c.mutate(r, k, a)
	twin.Wait()
	for try := 0; class == unsure && try < 3 && c.whim.IntN(10) < 7; try++ {
		pause(ctx, 200*time.Millisecond)
		a.api = (a.api + 1) % apis
		class = c.mutate(r, k, a)
	}
	c.react(ctx, r, k, class)
}

// react does what a client does who has been answered: look at what he was promised, or take his time.
func (c *client) react(ctx context.Context, r *record, k kind, class class) {
	switch {
	case class == unsure, class == refused:
		pause(ctx, 300*time.Millisecond)
	case class == fulfilled && k == create:
		c.revisit(ctx, r)
	}
}

// renew deletes and creates at once, as a gateway does with a sandbox that it takes for dead.
func (c *client) renew(ctx context.Context, r *record, a ask) {
	c.mutate(r, remove, a)
	a.prefer = ""
	c.react(ctx, r, create, c.mutate(r, create, a))
}

// revisit looks at what has just been promised: now, in a second, or not at all.
func (c *client) revisit(ctx context.Context, r *record) {
	n := c.whim.IntN(4)
	if n < 2 {
		c.look(ctx, r)
	}
	if n == 1 {
		pause(ctx, time.Second)
		c.look(ctx, r)
	}
}

func (c *client) mutate(r *record, k kind, a ask) class {
	q := r.begin(k, time.Now())
	method, path, body := http.MethodDelete, "/"+r.id, ""
	if k == create {
		method, path, body = http.MethodPost, "", `{"sandbox_id":"`+r.id+`"}`
		if a.sessions > 0 {
			body = fmt.Sprintf(`{"sandbox_id":%q,"max_shell_sessions":%d}`, r.id, a.sessions)
		}
	}
	got := c.send(method, path, body, a)
	class := classOf(k, got)
	r.end(q, class, time.Now())
	what := method
	if a.sessions > 0 && k == create {
		what = fmt.Sprint(method, " of ", a.sessions)
	}
	c.log(r, q.start, what, a, got)
	c.b.count(class)
	return class
}

// classOf decides what the answer to a create or a delete makes certain.
func classOf(k kind, got answer) class {
	detail := fmt.Sprint(got.body.Detail)
	switch {
	case got.unsent:
		return refused
	case got.code == http.StatusOK:
		return fulfilled
	case got.code == http.StatusAccepted,
		strings.Contains(detail, "The request is queued"),
		k == remove && strings.HasPrefix(detail, "Partial cleanup"):
		return accepted
	case got.code >= 400 && got.code < 500:
		return refused
	}
	return unsure
}

func (c *client) read(r *record, a ask) {
	a.prefer = ""
	p, start := r.held(), time.Now()
	got := c.send(http.MethodGet, "/"+r.id, "", a)
	c.log(r, start, "GET", a, got)
	if got.code == http.StatusNotFound || (got.code == http.StatusOK && got.body.Status == string(sandbox.NotFound)) {
		c.report(r)(r.missed(p))
	}
}

func (c *client) presence(r *record, a ask) {
	a.prefer = ""
	p, start := r.held(), time.Now()
	got := c.send(http.MethodGet, "/"+r.id+"/presence", "", a)
	c.log(r, start, "GET presence", a, got)
	if got.code == http.StatusOK && !got.body.Exists {
		c.report(r)(r.missed(p))
	}
}

func (c *client) job(r *record, a ask) {
	a.prefer = ""
	start := time.Now()
	c.log(r, start, "GET job", a, c.send(http.MethodGet, "/"+r.id+"/job", "", a))
}

func (c *client) list(a ask) {
	held, start := make([]*promise, ids), time.Now()
	for i, r := range c.b.records {
		held[i] = r.held()
	}
	got := c.send(http.MethodGet, "", "", a)
	if got.code != http.StatusOK {
		return
	}
	listed := make(map[string]bool, len(got.body.Sandboxes))
	for _, s := range got.body.Sandboxes {
		listed[s.ID] = true
	}
	for i, r := range c.b.records {
		if !listed[r.id] && held[i] != nil {
			c.log(r, start, "LIST without it", a, got)
			c.report(r)(r.missed(held[i]))
		}
	}
}

// look reads the Pod past the product.
func (c *client) look(ctx context.Context, r *record) {
	p, start := r.held(), time.Now()
	pod, err := c.p.core.Pods(namespace).Get(ctx, sandbox.PodName(r.id), metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return
	}
	uid, found := "", "no Pod"
	if err == nil {
		found = fmt.Sprintf("Pod %s of %s", pod.UID, pod.Annotations[sandbox.GenerationAnnotation])
		if alive(pod) {
			uid = string(pod.UID)
		} else {
			found += ", not alive"
		}
	}
	r.log.write(start, fmt.Sprintf("look → %s: %s", stamp(time.Now()), found))
	c.report(r)(r.sighted(p, uid, time.Now()))
}

// alive tells whether a Pod is neither on its way out nor at its end.
func alive(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded
}

func (c *client) report(r *record) func(breach, string) {
	return func(b breach, text string) { c.b.report(c.p, r, b, text) }
}

// An answer is what came back; code is 0 when nothing did.
type answer struct {
	code int
	body struct {
		Status     string `json:"status"`
		Exists     bool   `json:"exists"`
		PodUID     string `json:"container_id"`
		Op         string `json:"op"`
		State      string `json:"state"`
		Reason     string `json:"reason"`
		Generation uint64 `json:"generation"`
		Detail     any    `json:"detail"`
		Sandboxes  []struct {
			ID string `json:"sandbox_id"`
		} `json:"sandboxes"`
	}
	err error
	// unsent tells that nobody got the request.
	unsent bool
}

func (a answer) String() string {
	if a.err != nil {
		return a.err.Error()
	}
	var b strings.Builder
	fmt.Fprint(&b, a.code)
	for _, s := range []string{a.body.Op, a.body.State, a.body.Status, a.body.Reason, a.body.PodUID} {
		if s != "" {
			b.WriteString(" " + s)
		}
	}
	if a.body.Generation > 0 {
		fmt.Fprint(&b, " generation ", a.body.Generation)
	}
	if a.body.Detail != nil {
		fmt.Fprint(&b, " ", a.body.Detail)
	}
	return b.String()
}

func (c *client) log(r *record, start time.Time, what string, a ask, got answer) {
	if a.prefer != "" {
		what += " " + a.prefer
	}
	r.log.write(start, fmt.Sprintf("%s to api-%d → %s: %s", what, a.api, stamp(time.Now()), got))
}

func (c *client) send(method, path, body string, a ask) answer {
	c.b.ops.Add(1)
	return send(c.http, method, c.p.urls[a.api]+"/api/sandboxes"+path, body, a.prefer)
}

func send(h *http.Client, method, url, body, prefer string) (a answer) {
	req, err := http.NewRequest(method, url, bytes.NewBufferString(body))
	if err != nil {
		return answer{err: err, unsent: true}
	}
	req.Header.Set("X-API-Key", key)
	if prefer != "" {
		req.Header.Set("Prefer", prefer)
	}
	res, err := h.Do(req)
	if err != nil {
		var op *net.OpError
		return answer{err: err, unsent: errors.As(err, &op) && op.Op == "dial"}
	}
	defer func() { _ = res.Body.Close() }()
	if a.err = json.NewDecoder(res.Body).Decode(&a.body); a.err == nil {
		a.code = res.StatusCode
	}
	return a
}
