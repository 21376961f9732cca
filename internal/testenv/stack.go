package testenv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/app"
	"sandbox-provisioner/internal/config"
)

// stopTimeout is how long a program may take to end in good order: a worker waits for its request for jobs to end.
const stopTimeout = 20 * time.Second

// kind is which program it is.
type kind string

const (
	kindAPI    kind = "api"
	kindWorker kind = "worker"
)

// Stack starts programs in this process, where the race detector sees them.
func Stack(t testing.TB, opts ...Option) *Deployment[*Instance] {
	t.Helper()
	return deploy(t, opts, func(kind kind, name string, env map[string]string) *Instance {
		return &Instance{t: t, kind: kind, env: env, log: newLogBook(t, name)}
	})
}

// An Instance is a program that runs in this process.
type Instance struct {
	t      testing.TB
	kind   kind
	env    map[string]string
	log    *logBook
	cancel context.CancelFunc
	done   chan error
}

// Start starts it and returns when it serves.
func (i *Instance) Start() {
	i.t.Helper()
	require.Nil(i.t, i.cancel, "it runs already")
	ctx, cancel := context.WithCancel(context.Background())
	i.cancel, i.done = cancel, make(chan error, 1)
	go func() { i.done <- i.run(ctx) }()
	Until(i.t, startTimeout, func() error {
		select {
		case err := <-i.done:
			i.done <- err
			i.t.Fatalf("%s ended at its start: %v", i.kind, err)
		default:
		}
		return i.serves()
	})
}

// serves tells whether all ports are open.
func (i *Instance) serves() error { return serves(i.kind, i.env) }

func (i *Instance) run(ctx context.Context) error {
	if i.kind == kindAPI {
		return load(ctx, i.env, i.log, app.RunAPI)
	}
	return load(ctx, i.env, i.log, app.RunWorker)
}

func load[C interface{ Log() config.Telemetry }](
	ctx context.Context, env map[string]string, book *logBook, run func(context.Context, C, *slog.Logger) error,
) error {
	cfg, err := config.Load[C](func(name string) (string, bool) {
		value, found := env[name]
		return value, found
	})
	if err != nil {
		return err
	}
	return run(ctx, cfg, cfg.Log().Logger(book))
}

// Stop implements Program. Stopping it again is harmless.
func (i *Instance) Stop() {
	if i.cancel == nil {
		return
	}
	i.cancel()
	i.cancel = nil
	select {
	case err := <-i.done:
		if err != nil && !errors.Is(err, context.Canceled) {
			i.t.Errorf("%s ended with an error: %v", i.kind, err)
		}
	case <-time.After(stopTimeout):
		i.t.Errorf("%s did not end within %s", i.kind, stopTimeout)
	}
}

// Client implements Program.
func (i *Instance) Client() Client { return Client{URL: "http://" + i.env["LISTEN_ADDR"], Key: Key} }

// Log implements Program.
func (i *Instance) Log() string { return i.log.String() }

func (i *Instance) end() { i.Stop() }

func (i *Instance) metrics() string { return "http://" + i.env["METRICS_ADDR"] }

// serves tells whether a program with that environment has opened its ports.
func serves(kind kind, env map[string]string) error {
	if err := answers("http://" + env["METRICS_ADDR"] + "/livez"); err != nil {
		return fmt.Errorf("metrics of %s: %w", kind, err)
	}
	if kind == kindAPI {
		return answers("http://" + env["LISTEN_ADDR"] + "/health")
	}
	return nil
}
