package main

import (
	"slices"
	"sync"
	"time"
)

// A record is what the answers about one id, and looks at the cluster, have made certain. Requests overlap freely; each has a
// window in which it may take effect, and only what holds for every order within the windows is certain.
type record struct {
	id  string
	log diary

	mu sync.Mutex
	// openRemoves are the deletes without an answer; removed is when the window of the last of the others ends.
	openRemoves int
	removed     time.Time
	// candidates are the requests after which, as far as is known, no other took effect.
	candidates []*request
	// promise is set while a create has been answered with 200 and no delete can have taken effect since it began.
	promise *promise
	// seen are the Pods that were seen alive since the last accepted delete; doomed are those that an accepted delete is about.
	seen   map[string]time.Time
	doomed []string
}

func newRecord(id string) *record { return &record{id: id, seen: map[string]time.Time{}} }

// A kind of request.
type kind int

const (
	create kind = iota
	remove
)

// A request is a create or a delete.
type request struct {
	kind kind
	// start and end bound the time in which it may take effect; end is not known before it is answered.
	start, end time.Time
	class      class
}

// A class says what an answer means.
type class int

const (
	unanswered class = iota
	fulfilled        // it has been carried out
	accepted         // it will be carried out, or reported as failed
	unsure           // perhaps it was accepted, or will be
	refused          // it had no effect, or was reported as failed
	classes          // how many there are
)

// grace is how long after an answer that does not tell a request may still take effect: its publish may wait in the socket of a
// NATS that is frozen. It is longer than any freeze of NATS, with some seconds for NATS to catch up.
const grace = natsFreeze + 7*time.Second

// A promise is about one Pod. While the pointer in a record stays the same, no delete can have taken effect.
type promise struct {
	uid    string // "" until somebody has looked
	missed bool   // it was reported that a read missed it
}

// begin notes a request that is about to be sent.
func (r *record) begin(k kind, now time.Time) *request {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := &request{kind: k, start: now}
	r.candidates = append(r.candidates, q)
	if k == remove {
		r.openRemoves++
		r.promise = nil
	}
	return q
}

// end notes the answer to q.
func (r *record) end(q *request, c class, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q.class, q.end = c, now
	if c == unsure {
		q.end = now.Add(grace)
	}
	if q.kind == remove {
		r.openRemoves--
		if c != refused && q.end.After(r.removed) {
			r.removed = q.end
		}
	}
	switch c {
	default: // it may or may not have taken effect, and the others too
	case refused:
		r.candidates = slices.DeleteFunc(r.candidates, func(x *request) bool { return x == q })
	case accepted, fulfilled:
		r.candidates = slices.DeleteFunc(r.candidates, func(x *request) bool {
			return x.class != unanswered && x.end.Before(q.start)
		})
		if q.kind == remove {
			r.doom(q.start)
		}
	}
	if q.kind == create && c == fulfilled && r.promise == nil && r.openRemoves == 0 && r.removed.Before(q.start) {
		r.promise = &promise{}
	}
}

// doom notes that a delete that began at start was accepted: what had been seen alive before must not serve again.
func (r *record) doom(start time.Time) {
	for uid, at := range r.seen {
		if at.Before(start) {
			delete(r.seen, uid)
			r.doomed = append(r.doomed, uid)
		}
	}
	const remembered = 32
	r.doomed = r.doomed[max(0, len(r.doomed)-remembered):]
}

// held is the promise that holds now, nil when none does.
func (r *record) held() *promise {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.promise
}

// sighted notes that a look at the cluster, between taking p with held and now, found the Pod with that uid alive, or none
// alive when uid is "".
func (r *record) sighted(p *promise, uid string, now time.Time) (breach, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.seen[uid]; uid != "" && !known && !slices.Contains(r.doomed, uid) {
		r.seen[uid] = now
	}
	if p == nil || r.promise != p {
		return none, "" // a delete may have come between
	}
	kind, text := p.compare(uid, r.doomed)
	if kind != none {
		r.promise = nil // and is broken only once
	}
	return kind, text
}

// compare holds the promise against what is there.
func (p *promise) compare(uid string, doomed []string) (breach, string) {
	switch {
	case uid == "" && p.uid == "":
		return killedByFriend, "a create was answered with 200, and no Pod is alive"
	case uid == "":
		return killedByFriend, "Pod " + p.uid + " was promised, and none is alive"
	case p.uid != "" && p.uid != uid:
		return killedByFriend, "Pod " + p.uid + " was promised, and another one is there: " + uid
	case slices.Contains(doomed, uid):
		return lost, "a delete was accepted, and its Pod serves a later create: " + uid
	}
	p.uid = uid
	return none, ""
}

// missed notes that a read through the API, since p was taken with held, said that there is no sandbox.
func (r *record) missed(p *promise) (breach, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p == nil || r.promise != p || p.missed {
		return none, ""
	}
	p.missed = true
	return untrue, "it was read as not found, or not listed, while it was promised"
}

// expected is what the answers say the cluster must hold in the end: true for a Pod and a Service, false for neither. certain is
// false when that depends on what became of a request whose answer does not tell, or on the order of two that overlapped.
func (r *record) expected() (present, certain bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, q := range r.candidates {
		if i > 0 && (q.kind == create) != present {
			return false, false
		}
		present = q.kind == create
		certain = certain || q.class == accepted || q.class == fulfilled
	}
	return present, certain
}

// isDoomed tells whether an accepted delete was about the Pod.
func (r *record) isDoomed(uid string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.doomed, uid)
}
