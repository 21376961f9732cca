package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v4"

	"sandbox-provisioner/internal/sandbox"
)

// quickTries is a few tries within a second, for faults that pass at once.
func quickTries() backoff.BackOff {
	b := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(30*time.Millisecond),
		backoff.WithMultiplier(3),
		backoff.WithMaxElapsedTime(time.Second),
	)
	return backoff.WithMaxRetries(b, 2)
}

// inPlace runs try again for as long as its error is one that passes at once.
func (r *Reconciler) inPlace(ctx context.Context, try func() error) error {
	return backoff.Retry(func() error {
		err := try()
		var retry *sandbox.Retry
		if errors.As(err, &retry) && retry.After == 0 {
			return err
		}
		if err != nil {
			return backoff.Permanent(err)
		}
		return nil
	}, backoff.WithContext(r.quick(), ctx))
}

const (
	firstDelay = 100 * time.Millisecond
	growth     = 1.5
	jitter     = 0.2
)

// delay is how long a job waits after its nth attempt: about half of the time that it has waited already, so that a wait
// is never much longer than it has to be, and at most limit.
func delay(attempt int, limit time.Duration) time.Duration {
	top := float64(limit) / (1 + jitter)
	d := min(float64(firstDelay), top)
	for range min(attempt-1, 100) {
		d = min(d*growth, top)
	}
	return time.Duration(d * (1 + jitter*(2*rand.Float64()-1))) //nolint:gosec // jitter, not a secret
}
