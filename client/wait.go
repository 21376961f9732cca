package client

import (
	"context"
	"errors"
	"fmt"
)

// WaitReady blocks until the sandbox takes requests, and returns it. It returns a [*FailedError] as soon as that cannot happen
// any more: the Pod has ended, the create has failed, or there is no such sandbox and no create under way. A Pod that cannot start,
// say for want of its image, may yet do so, and is waited for; when ctx ends, the error says what it was waiting for.
func (c *Client) WaitReady(ctx context.Context, id string) (*Sandbox, error) {
	for {
		s, err := c.look(ctx, id)
		if err != nil || s.Ready {
			return s, err
		}
		if err := sleep(ctx, c.pollInterval); err != nil {
			return nil, fmt.Errorf("sandbox %q is not ready: %s %s %s: %w", id, s.Status, s.Reason, s.Message, err)
		}
	}
}

// look returns a sandbox that is ready or may become so.
func (c *Client) look(ctx context.Context, id string) (*Sandbox, error) {
	s, err := c.Get(ctx, id)
	var answer *Error
	switch {
	case errors.As(err, &answer) && answer.Status == 404:
		return c.coming(ctx, id, nil, answer.Job)
	case err != nil:
		return nil, err
	case s.Status == NotFound:
		return c.coming(ctx, id, s, nil)
	case s.Status == Failed || s.Status == Succeeded:
		return nil, &FailedError{ID: id, Sandbox: s}
	}
	return s, nil
}

// coming tells whether a sandbox without a Pod is on its way. left is what there is of it, job its create as far as it is known.
func (c *Client) coming(ctx context.Context, id string, left *Sandbox, job *Job) (*Sandbox, error) {
	if job == nil {
		var err error
		// The cluster alone does not tell what is queued.
		if job, err = c.Job(ctx, id); err != nil && !errors.Is(err, ErrNotFound) {
			return nil, err
		}
	}
	switch {
	case job == nil || job.Op != Present:
		return nil, &FailedError{ID: id, Sandbox: left}
	case job.State == JobFailed:
		return nil, &FailedError{ID: id, Sandbox: left, Job: job}
	case job.State == JobSucceeded:
		// It may have been made after the cluster was read.
		switch s, err := c.Get(ctx, id); {
		case err != nil && !errors.Is(err, ErrNotFound):
			return nil, err
		case err != nil || s.Status == NotFound:
			return nil, &FailedError{ID: id, Sandbox: s}
		default:
			return s, nil
		}
	}
	return &Sandbox{ID: id, Status: Pending, Reason: job.Reason, Message: job.Message}, nil
}

// WaitGone blocks until nothing of the sandbox is left and no create of it is under way, or ctx ends. A Pod that has been told
// to end does not count, though it may take its grace period.
func (c *Client) WaitGone(ctx context.Context, id string) error {
	for {
		gone, err := c.gone(ctx, id)
		if err != nil || gone {
			return err
		}
		if err := sleep(ctx, c.pollInterval); err != nil {
			return fmt.Errorf("sandbox %q is not gone: %w", id, err)
		}
	}
}

func (c *Client) gone(ctx context.Context, id string) (bool, error) {
	_, err := c.Get(ctx, id)
	var answer *Error
	switch {
	case err == nil:
		return false, nil
	case !errors.As(err, &answer) || answer.Status != 404:
		return false, err
	case answer.Job != nil && !answer.Job.Finished():
		return false, nil
	}
	// Without its Service a sandbox is not found, though its Pod may be there.
	p, err := c.Presence(ctx, id)
	return err == nil && !p.Exists, err
}
