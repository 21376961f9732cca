// Package app puts the parts together: the REST side, the worker side, and both in one process.
package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"sandbox-provisioner/internal/api"
	"sandbox-provisioner/internal/census"
	"sandbox-provisioner/internal/config"
	"sandbox-provisioner/internal/jobs"
	"sandbox-provisioner/internal/k8s"
	"sandbox-provisioner/internal/natsserver"
	"sandbox-provisioner/internal/telemetry"
	"sandbox-provisioner/internal/worker"
)

// RunAPI serves the REST API until ctx ends. Neither NATS nor Kubernetes need to be up.
func RunAPI(ctx context.Context, cfg config.API, log *slog.Logger) error {
	connect := func() (*nats.Conn, error) { return connectNATS(cfg.NATS, "api", log) }
	return run(ctx, "api", cfg.Common, connect, log, func(ctx context.Context, p *parts, all *errgroup.Group) {
		all.Go(func() error { return p.serve(ctx, cfg.HTTP) })
	})
}

// RunWorker carries out jobs until ctx ends. NATS need not be up.
func RunWorker(ctx context.Context, cfg config.Worker, log *slog.Logger) error {
	connect := func() (*nats.Conn, error) { return connectNATS(cfg.NATS, "worker", log) }
	return run(ctx, "worker", cfg.Common, connect, log, func(ctx context.Context, p *parts, all *errgroup.Group) {
		all.Go(func() error { return p.work(ctx, cfg.Worker) })
	})
}

// RunStandalone is both, with a NATS server of its own.
func RunStandalone(ctx context.Context, cfg config.Standalone, log *slog.Logger) error {
	server, err := natsserver.Start(natsserver.Config{
		DataDir: cfg.Store.Dir, SyncAlways: cfg.Store.Sync.Always(), SyncInterval: time.Duration(cfg.Store.Sync),
	}, log)
	if err != nil {
		return fmt.Errorf("embedded NATS: %w", err)
	}
	defer server.Shutdown()
	connect := func() (*nats.Conn, error) { return server.Connect(jobs.ConnectOptions("standalone", log)...) }
	return run(ctx, "standalone", cfg.Common, connect, log, func(ctx context.Context, p *parts, all *errgroup.Group) {
		// The worker goes on until the last request is answered: some wait for it.
		workerCtx, stopWorker := context.WithCancel(context.WithoutCancel(ctx))
		all.Go(func() error {
			defer stopWorker()
			return p.serve(ctx, cfg.HTTP)
		})
		all.Go(func() error { return p.work(workerCtx, cfg.Worker) })
	})
}

// run puts the parts of a program together and runs what start adds, until ctx ends or one of them fails.
func run(
	ctx context.Context, program string, cfg config.Common, connect func() (*nats.Conn, error), log *slog.Logger,
	start func(ctx context.Context, p *parts, all *errgroup.Group),
) error {
	tracing, stopTracing, err := telemetry.StartTracing(ctx, program, cfg.Traces, log)
	if err != nil {
		return err
	}
	defer stopTracing()
	nc, err := connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	p, err := assemble(ctx, nc, cfg, tracing, log)
	if err != nil {
		return err
	}
	all, ctx := errgroup.WithContext(ctx)
	start(ctx, p, all)
	all.Go(func() error { return p.tell(ctx) })
	all.Go(func() error { return telemetry.ServeProfiles(ctx, cfg.Telemetry.PprofAddr, log) })
	return all.Wait()
}

// parts are what both sides need.
type parts struct {
	queue   *jobs.Queue
	cluster *k8s.Cluster
	core    *k8s.Core
	pods    *k8s.PodSource
	metrics *prometheus.Registry
	cfg     config.Common
	tracing trace.TracerProvider // nil without traces
	log     *slog.Logger
	// kubernetes tells the log whether the cluster answers.
	kubernetes *telemetry.Link
}

func connectNATS(cfg config.NATS, name string, log *slog.Logger) (*nats.Conn, error) {
	opts := jobs.ConnectOptions("sandbox-provisioner "+name, log)
	switch {
	case cfg.Creds != "":
		if err := checkCreds(cfg.Creds); err != nil {
			return nil, fmt.Errorf("NATS_CREDS=%s: %w", cfg.Creds, err)
		}
		opts = append(opts, nats.UserCredentials(cfg.Creds))
	case cfg.User != "":
		opts = append(opts, nats.UserInfo(cfg.User, cfg.Password))
	case cfg.Token != "":
		opts = append(opts, nats.Token(cfg.Token))
	}
	nc, err := nats.Connect(cfg.URL, opts...)
	if err != nil {
		return nil, fmt.Errorf("NATS_URL: %w", err)
	}
	return nc, nil
}

// checkCreds finds credentials that can never be used. The client would say so of the URL, and only later.
func checkCreds(path string) error {
	content, err := os.ReadFile(path)
	if pathError := (*fs.PathError)(nil); errors.As(err, &pathError) {
		return fmt.Errorf("cannot be read: %w", pathError.Err) // without the path, which is said already
	}
	if _, err := nkeys.ParseDecoratedUserNKey(content); err != nil {
		return errors.New("holds no seed of a user")
	}
	return nil
}

func assemble(
	ctx context.Context, nc *nats.Conn, cfg config.Common, tracing trace.TracerProvider, log *slog.Logger,
) (*parts, error) {
	queue, err := jobs.New(nc, cfg.Jobs, log)
	if err != nil {
		return nil, err
	}
	rest, err := k8s.Connect(ctx, cfg.Cluster, log)
	if err != nil {
		return nil, err
	}
	metrics := telemetry.NewRegistry()
	jobs.RegisterMetrics(metrics, queue)
	k8s.NewMetrics(metrics).Instrument(rest)
	if tracing != nil {
		k8s.Trace(rest)
	}
	core, err := k8s.NewCore(rest)
	if err != nil {
		return nil, err
	}
	pods, err := k8s.NewPodSource(rest, cfg.Sandbox)
	if err != nil {
		return nil, err
	}
	return &parts{
		queue: queue, cluster: k8s.New(core, cfg.Sandbox, cfg.Cluster.RequestTimeout), core: core, pods: pods, metrics: metrics,
		cfg: cfg, tracing: tracing, log: log, kubernetes: telemetry.NewLink("Kubernetes", log),
	}, nil
}

// ping asks the cluster whether it answers.
func (p *parts) ping(ctx context.Context) error {
	err := p.cluster.Ping(ctx)
	p.kubernetes.Note(err)
	return err
}

func (p *parts) checks() []telemetry.Check {
	return []telemetry.Check{{Name: "NATS", Ping: p.queue.Ping}, {Name: "Kubernetes", Ping: p.ping}}
}

// tell serves the metrics and probes, if anywhere.
func (p *parts) tell(ctx context.Context) error {
	addr := p.cfg.Telemetry.MetricsAddr
	if addr == "" {
		<-ctx.Done()
		return nil
	}
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	all.Go(func() { p.cluster.KeepPinging(ctx, p.kubernetes.Note) })
	return telemetry.Serve(ctx, addr, p.metrics, p.log, p.checks()...)
}

func (p *parts) serve(ctx context.Context, cfg api.Config) error {
	stop, err := p.queue.Announce()
	if err != nil {
		return err
	}
	defer stop()
	metrics := api.NewMetrics(p.metrics)
	provisioner := api.NewProvisioner(p.queue, p.cluster, p.cfg.Sandbox, p.cfg.Jobs, metrics)
	handler := api.NewHandler(provisioner, p.cluster, p.cfg.Sandbox, cfg, metrics, p.tracing, p.log, p.checks()...)
	return api.Serve(ctx, cfg, handler, p.log)
}

// work carries out jobs. Only if somebody may ask for the number of sandboxes are they watched.
func (p *parts) work(ctx context.Context, cfg worker.Config) error {
	metrics, sandboxes := worker.NewMetrics(p.metrics), census.New(p.pods, p.metrics, p.log)
	if err := p.ensureNamespace(ctx); err != nil {
		return err
	}
	var told worker.Census
	var all sync.WaitGroup
	if p.cfg.Telemetry.MetricsAddr != "" {
		told = sandboxes
		all.Go(func() { sandboxes.Run(ctx) })
	}
	reconciler := worker.NewReconciler(p.queue, p.cluster, metrics, told).Telling(p.log, p.tracing)
	all.Go(func() { p.queue.KeepUnfinished(ctx) })
	all.Go(func() { worker.NewSweep(p.queue, p.cluster, reconciler, p.cfg.Jobs, cfg, metrics, p.log).Run(ctx) })
	all.Go(func() {
		worker.New(p.queue.Consumer(), reconciler, p.ping, p.cfg.Jobs.AckWait, cfg, metrics, p.log).Run(ctx)
	})
	all.Wait()
	return nil
}

// namespaceWait is how long a worker waits at its start for a cluster that does not answer.
const namespaceWait = 30 * time.Second

// ensureNamespace waits for a cluster that is not up yet, and for nothing else.
func (p *parts) ensureNamespace(ctx context.Context) error {
	policy := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(100*time.Millisecond),
		backoff.WithMaxInterval(2*time.Second),
		backoff.WithMaxElapsedTime(namespaceWait),
	)
	return backoff.RetryNotify(func() error {
		err := k8s.EnsureNamespace(ctx, p.core, p.cfg.Sandbox.Namespace)
		if err != nil && !k8s.Unreachable(err) {
			return backoff.Permanent(err)
		}
		return err
	}, backoff.WithContext(policy, ctx), func(err error, _ time.Duration) { p.kubernetes.Down(err) })
}
