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
	return errors.Join(problems...)
}
