package worker

import (
	"context"
	"sync"
)

// slots are the jobs that a worker carries out at once. How many those may be follows what the cluster takes, as TCP's congestion
// window does (RFC 5681): a cluster that cannot keep up answers everything too late, and would never recover from all of it being
// tried again at once.
type slots struct {
	most int

	mu          sync.Mutex
	limit, busy int
	changed     chan struct{} // holds a word when there may be a free one
}

func newSlots(most int) *slots {
	return &slots{most: most, limit: most, changed: make(chan struct{}, 1)}
}

// acquire waits until a slot is free, takes all that are, and returns how many; the error is that of ctx.
func (s *slots) acquire(ctx context.Context) (int, error) {
	for {
		if free := s.take(); free > 0 {
			return free, nil
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-s.changed:
		}
	}
}

func (s *slots) take() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	free := max(0, s.limit-s.busy)
	s.busy += free
	return free
}

func (s *slots) release(n int) {
	s.mu.Lock()
	s.busy -= n
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// allowed is how many jobs there may be at once.
func (s *slots) allowed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limit
}

// grow allows one job more, because the cluster has taken one.
func (s *slots) grow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = min(s.limit+1, s.most)
}

// shrink allows half as many jobs, because the cluster has not answered one.
func (s *slots) shrink() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = max(s.limit/2, 1)
}
