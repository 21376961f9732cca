package client

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"
)

const (
	firstPause = 200 * time.Millisecond
	maxPause   = 5 * time.Second
	// maxRetryAfter is the longest that a caller without a deadline is kept waiting because somebody's Retry-After says so.
	maxRetryAfter = time.Minute
)

// do is attempt, repeated as WithTries says. The error is that of the last attempt.
func (c *Client) do(ctx context.Context, r request, into any) (status int, err error) {
	pauses := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(firstPause), backoff.WithMultiplier(2), backoff.WithMaxInterval(maxPause), backoff.WithMaxElapsedTime(0))
	for try := 1; ; try++ {
		if status, err = c.attempt(ctx, r, into); err == nil || try == c.tries || ctx.Err() != nil {
			return status, err
		}
		least, passes := passing(err)
		if !passes || least > maxRetryAfter {
			return 0, err
		}
		pause := max(pauses.NextBackOff(), least)
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= pause {
			return 0, err // which tells more than that time is up
		}
		if sleep(ctx, pause) != nil {
			return 0, err
		}
	}
}

// passing tells whether an attempt may succeed later, and how long to wait at least.
func passing(err error) (least time.Duration, passes bool) {
	var answer *Error
	if errors.As(err, &answer) {
		return answer.RetryAfter, answer.passes()
	}
	return 0, errors.Is(err, ErrUnavailable)
}

// sleep returns the error of ctx if that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
