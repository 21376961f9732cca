// Package model_test drives the product's own decision code (api.Provisioner, worker.Reconciler, k8s.Cluster) against streams
// and a cluster in memory, one step at a time, in every order that chance brings: whatever can be interleaved, delayed,
// repeated, lost or crashed is a choice. After each run the invariants of docs/guarantees.md must hold.
package model_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"
)

// A chooser makes the choices of a run: it returns a number in [0,n).
type chooser func(n int) int

// percent is true in p of a hundred cases.
func (c chooser) percent(p int) bool { return p > 0 && c(100) < p }

// A scheduler lets one goroutine go on at a time. All of them live in one synctest bubble, so that it knows when the one that
// it let go has come to its next step.
type scheduler struct {
	choose chooser
	mu     sync.Mutex
	steps  []*step
	// frozen actors do not get their turn.
	frozen map[string]bool
	// lately is the label of the last step that an actor has taken.
	lately map[string]string
	// log is the history of the run.
	log []string
}

// A step is a point where a goroutine waits for its turn: an exchange with the outside.
type step struct {
	actor   string
	label   string
	ready   func() bool // nil: always
	granted chan verdict
}

// A verdict says what happens to the exchange.
type verdict int

const (
	proceed  verdict = iota // it happens
	loseCall                // it never arrives; the caller sees an error
	loseBack                // it happens, and the answer is lost
)

var errLost = errors.New("the connection broke")

func (s *scheduler) note(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf(format, args...))
}

// await blocks until it is actor's turn. The error is that of ctx.
func (s *scheduler) await(ctx context.Context, actor, label string, ready func() bool) (verdict, error) {
	if err := ctx.Err(); err != nil {
		return loseCall, err
	}
	st := &step{actor: actor, label: label, ready: ready, granted: make(chan verdict, 1)}
	s.mu.Lock()
	s.steps = append(s.steps, st)
	s.mu.Unlock()
	select {
	case v := <-st.granted:
		return v, nil
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		s.steps = slices.DeleteFunc(s.steps, func(o *step) bool { return o == st })
		return loseCall, ctx.Err()
	}
}

// settle waits until every goroutine waits for its turn, and returns the steps that can be taken, in a fixed order.
func (s *scheduler) settle() []*step {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	ready := make([]*step, 0, len(s.steps))
	for _, st := range s.steps {
		if !s.frozen[st.actor] && (st.ready == nil || st.ready()) {
			ready = append(ready, st)
		}
	}
	slices.SortStableFunc(ready, func(a, b *step) int {
		if c := strings.Compare(a.actor, b.actor); c != 0 {
			return c
		}
		return strings.Compare(a.label, b.label)
	})
	return ready
}

// pending are the steps of one actor, ready or not.
func (s *scheduler) pending(actor string) []*step {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	var mine []*step
	for _, st := range s.steps {
		if st.actor == actor {
			mine = append(mine, st)
		}
	}
	slices.SortStableFunc(mine, func(a, b *step) int { return strings.Compare(a.label, b.label) })
	return mine
}

// grant lets one goroutine go on.
func (s *scheduler) grant(st *step, v verdict) {
	s.mu.Lock()
	s.steps = slices.DeleteFunc(s.steps, func(o *step) bool { return o == st })
	s.lately[st.actor] = st.label
	s.mu.Unlock()
	st.granted <- v
	synctest.Wait()
}

// pass lets time pass for everybody.
func (s *scheduler) pass(d time.Duration) {
	s.note("           %s pass", d)
	time.Sleep(d)
	synctest.Wait()
}
