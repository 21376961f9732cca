package worker

import (
	"errors"
	"fmt"
	"time"
)

// Config of the worker's loop.
type Config struct {
	// Concurrency is the number of ids worked on at once. Waiting ids hold no slot.
	Concurrency int `env:"WORKER_CONCURRENCY, default=64" help:"jobs that one worker carries out at once"`
	// DrainWait is how long running jobs may finish after SIGTERM before they are handed back.
	DrainWait time.Duration `env:"DRAIN_WAIT, default=8s" help:"how long running jobs may finish after SIGTERM before they are handed back; up to 9s"`
	// RetryMax caps the growing delay between two tries.
	RetryMax time.Duration `env:"RETRY_MAX, default=30s" help:"longest delay between two tries of one job"`
	// SweepInterval is how often one worker compares all that exists with what was asked for. The jobs do without it.
	SweepInterval time.Duration `env:"SWEEP_INTERVAL, default=5m" help:"how often a worker looks for what was left over; 0s is never"`
	// OrphanGrace is for somebody who deletes a Pod to have its sandbox made anew at the same address.
	OrphanGrace time.Duration `env:"ORPHAN_GRACE, default=15m" help:"how long a Pod without its Service, or the reverse, is left alone"`
}

// Validate finds values with which the loop could not run or not end in time.
func (c Config) Validate() error {
	var problems []error
	if c.Concurrency < 1 || c.Concurrency > 1000 {
		problems = append(problems, fmt.Errorf("WORKER_CONCURRENCY=%d: must be 1 to 1000", c.Concurrency))
	}
	if c.DrainWait < 0 || c.DrainWait > 9*time.Second {
		problems = append(problems, fmt.Errorf("DRAIN_WAIT=%s: must be 0s to 9s", c.DrainWait))
	}
	if c.RetryMax <= 0 {
		problems = append(problems, fmt.Errorf("RETRY_MAX=%s: must be above 0s", c.RetryMax))
	}
	if c.SweepInterval < 0 {
		problems = append(problems, fmt.Errorf("SWEEP_INTERVAL=%s: must be 0s or more", c.SweepInterval))
	}
	if c.OrphanGrace < 0 {
		problems = append(problems, fmt.Errorf("ORPHAN_GRACE=%s: must be 0s or more", c.OrphanGrace))
	}
	return errors.Join(problems...)
}
