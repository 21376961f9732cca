package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// A history is what the clients were told. Each id is in the hands of one client at a time, so that the order of its
// requests is known, but for those that a client deliberately sends at once.
type history struct {
	ids      [ids]*record
	ops      atomic.Int64
	friendly atomic.Int64
}

// A record is what is known of one id.
type record struct {
	mu sync.Mutex
	id string
	// state is what the last request has made certain.
	state certainty
	// uid is the Pod that a 200 was answered for, while no delete has been sent since.
	uid string
	log []string
}

type certainty int

const (
	unknown certainty = iota // the last request was answered with an error, or two overlapped
	present                  // the last request was a create, answered with 200 or 202
	absent                   // the last request was a delete, answered with 200 or 202
)

func newHistory() *history {
	h := &history{}
	for i := range h.ids {
		h.ids[i] = &record{id: fmt.Sprintf("c%03d", i)}
	}
	return h
}

const logLines = 60

func (r *record) note(format string, args ...any) {
	r.log = append(r.log, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	r.log = r.log[max(0, len(r.log)-logLines):]
}

// A client is one gateway.
type client struct {
	p    *plant
	h    *history
	r    *rand.Rand
	http *http.Client
}

func newClient(p *plant, h *history, seed uint64, n int) *client {
	return &client{p: p, h: h, r: rand.New(rand.NewPCG(seed, uint64(n)+1)), http: &http.Client{Timeout: 28 * time.Second}}
}

func (c *client) work(ctx context.Context) {
	for ctx.Err() == nil {
		r := c.h.ids[c.r.IntN(ids)]
		if !r.mu.TryLock() {
			continue
		}
		for range 1 + c.r.IntN(4) {
			c.step(r)
		}
		r.mu.Unlock()
	}
}

// step sends one request, or two at once, about an id that nobody else is asking about.
func (c *client) step(r *record) {
	switch n := c.r.IntN(100); {
	case n < 40:
		c.create(r)
	case n < 65:
		c.delete(r)
	case n < 75:
		var both sync.WaitGroup
		first, second := c.request(r, c.r.IntN(3) == 0), c.request(r, c.r.IntN(3) == 0)
		if first.method == http.MethodDelete || second.method == http.MethodDelete {
			r.uid = ""
		}
		r.state = unknown
		var a, b answer
		both.Go(func() { a = c.send(first) })
		both.Go(func() { b = c.send(second) })
		both.Wait()
		r.note("%s -> %s   beside   %s -> %s", first, a, second, b)
	case n < 97:
		c.read(r)
	default:
		c.send(request{method: http.MethodGet, url: c.url() + "/api/sandboxes"})
	}
}

func (c *client) create(r *record) {
	q := c.request(r, false)
	a := c.send(q)
	r.note("%s -> %s", q, a)
	switch a.code {
	case http.StatusOK:
		r.state = present
		if uid := c.uid(r); uid != "" {
			c.promised(r, uid, "a create was answered with 200")
			r.uid = uid
		}
	case http.StatusAccepted:
		r.state = present
	case http.StatusConflict:
		// Less capacity than asked for: what was there is untouched.
		if r.state != present {
			r.state = unknown
		}
	default:
		r.state = unknown
	}
}

func (c *client) delete(r *record) {
	q := c.request(r, true)
	r.uid = ""
	a := c.send(q)
	r.note("%s -> %s", q, a)
	r.state = unknown
	if a.code == http.StatusOK || a.code == http.StatusAccepted {
		r.state = absent
	}
}

// read looks at the sandbox, and holds it against what was promised.
func (c *client) read(r *record) {
	a := c.send(request{method: http.MethodGet, url: c.url() + "/api/sandboxes/" + r.id})
	if r.uid != "" && (a.code == http.StatusNotFound || (a.code == http.StatusOK && a.body.Status == "NotFound")) {
		r.note("get -> %s, although %s was promised", a, r.uid)
		c.h.friendly.Add(1)
		fmt.Printf("VIOLATION %s is not to be seen although %s was promised\n%s\n", r.id, r.uid, r.history())
		r.uid = ""
	}
	if uid := c.uid(r); uid != "" {
		c.promised(r, uid, "looked again")
	}
}

// promised notes the Pod that is there; it must be the one that was promised.
func (c *client) promised(r *record, uid, when string) {
	if r.uid != "" && uid != r.uid {
		c.h.friendly.Add(1)
		r.note("%s: the Pod is %s", when, uid)
		fmt.Printf("VIOLATION %s: %s was promised, and is %s without a delete\n%s\n", r.id, r.uid, uid, r.history())
	}
	if r.uid != "" {
		r.uid = uid
	}
}

// uid is that of the Pod, empty when it is not known.
func (c *client) uid(r *record) string {
	a := c.send(request{method: http.MethodGet, url: c.url() + "/api/sandboxes/" + r.id + "/presence"})
	if a.code != http.StatusOK {
		return ""
	}
	if !a.body.Exists && r.uid != "" {
		c.h.friendly.Add(1)
		fmt.Printf("VIOLATION %s: the Pod %s was promised, and is not there\n%s\n", r.id, r.uid, r.history())
		r.uid = ""
	}
	return a.body.PodUID
}

func (r *record) history() string {
	var b bytes.Buffer
	for _, line := range r.log {
		fmt.Fprintf(&b, "    %s\n", line)
	}
	return b.String()
}

// A request is what is sent.
type request struct {
	method, url, body string
	async             bool
}

func (q request) String() string {
	s := q.method + " " + q.body
	if q.async {
		s += " async"
	}
	return s
}

func (c *client) url() string { return c.p.urls[c.r.IntN(len(c.p.urls))] }

// request is a delete, or a create of some kind.
func (c *client) request(r *record, remove bool) request {
	async := c.r.IntN(5) == 0
	if remove {
		return request{method: http.MethodDelete, url: c.url() + "/api/sandboxes/" + r.id, async: async}
	}
	body := `{"sandbox_id":"` + r.id + `"}`
	if c.r.IntN(6) == 0 {
		body = fmt.Sprintf(`{"sandbox_id":%q,"max_shell_sessions":%d}`, r.id, 5+10*c.r.IntN(2))
	}
	return request{method: http.MethodPost, url: c.url() + "/api/sandboxes", body: body, async: async}
}

// An answer is what came back; code is 0 when nothing did.
type answer struct {
	code int
	body struct {
		Status string `json:"status"`
		Exists bool   `json:"exists"`
		PodUID string `json:"container_id"`
		State  string `json:"state"`
		Detail any    `json:"detail"`
	}
	err error
}

func (a answer) String() string {
	if a.err != nil {
		return a.err.Error()
	}
	return fmt.Sprint(a.code, " ", a.body.Status, " ", a.body.Detail)
}

func (c *client) send(q request) (a answer) {
	c.h.ops.Add(1)
	return send(c.http, q)
}

func send(h *http.Client, q request) (a answer) {
	req, err := http.NewRequest(q.method, q.url, bytes.NewBufferString(q.body))
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("X-API-Key", "chaos")
	if q.async {
		req.Header.Set("Prefer", "respond-async")
	}
	res, err := h.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = res.Body.Close() }()
	a.code = res.StatusCode
	a.err = json.NewDecoder(res.Body).Decode(&a.body)
	return a
}
