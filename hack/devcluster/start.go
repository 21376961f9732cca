package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	runtimelog "sigs.k8s.io/controller-runtime/pkg/log"

	"sandbox-provisioner/hack/devcluster/asset"
	"sandbox-provisioner/hack/devcluster/internal/control"
	"sandbox-provisioner/hack/devcluster/internal/controlplane"
	"sandbox-provisioner/hack/devcluster/internal/fault"
	"sandbox-provisioner/hack/devcluster/internal/node"
	"sandbox-provisioner/hack/devcluster/program"
)

const aboutStart = "Runs etcd, kube-apiserver and the simulated node until SIGINT or SIGTERM, then removes all traces.\n" +
	"Prints one line on stdout when ready."

// state is what --state writes.
type state struct {
	Kubeconfig   string `json:"kubeconfig"`
	ControlURL   string `json:"control_url"`
	Server       string `json:"server"`
	APIServerPID int    `json:"apiserver_pid"`
	EtcdPID      int    `json:"etcd_pid"`
}

type startOptions struct {
	kubeconfig, controlAddr, state, dataDir, binDir string
	readyDelay, stopDelay                           time.Duration
	dieWithParent, unsafeNoFsync, serviceAccounts   bool
	verbose                                         bool
}

func parseStart(args []string) (o startOptions, err error) {
	flags := flag.NewFlagSet("start", flag.ContinueOnError)
	flags.StringVar(&o.kubeconfig, "kubeconfig", "",
		"file that gets the admin's kubeconfig (default <repository>/bin/devcluster.kubeconfig)")
	flags.StringVar(&o.controlAddr, "control-addr", "127.0.0.1:0", "address of the control API (faults, stub sandboxes)")
	flags.StringVar(&o.state, "state", "", "file that gets a JSON description of the cluster when it is ready")
	flags.StringVar(&o.dataDir, "data-dir", "",
		"directory that keeps etcd's data across runs (default: temporary, removed at the end)")
	flags.StringVar(&o.binDir, "bin-dir", "", aboutBinDir)
	flags.DurationVar(&o.readyDelay, "ready-delay", 300*time.Millisecond, "time from a Pod's binding to Running and Ready")
	flags.DurationVar(&o.stopDelay, "stop-delay", 100*time.Millisecond,
		"time a deleted Pod takes to stop, never longer than its grace period")
	flags.BoolVar(&o.dieWithParent, "die-with-parent", false, "stop when the process that started this one is gone")
	flags.BoolVar(&o.unsafeNoFsync, "unsafe-no-fsync", false, "let etcd skip fsync: faster, and no basis for benchmarks")
	flags.BoolVar(&o.serviceAccounts, "service-account-admission", false,
		"make Pods need their ServiceAccount; the simulated node creates each namespace's default one")
	flags.BoolVar(&o.verbose, "verbose", false, "log every step of every Pod")
	if err := program.ParseAll(flags, name, aboutStart, args); err != nil {
		return o, err
	}
	if o.readyDelay < 0 || o.stopDelay < 0 {
		return o, program.Misuse("delays cannot be negative")
	}
	if o.kubeconfig == "" {
		root, err := asset.Root()
		if err != nil {
			return o, fmt.Errorf("choose a place for the kubeconfig: %w", err)
		}
		o.kubeconfig = filepath.Join(root, "bin", "devcluster.kubeconfig")
	}
	o.kubeconfig, err = filepath.Abs(o.kubeconfig)
	return o, err
}

// parentCheck is for systems whose kernel does not tell.
const parentCheck = time.Second

func runStart(ctx context.Context, args []string) error {
	o, err := parseStart(args)
	if err != nil {
		return err
	}
	level := slog.LevelInfo
	if o.verbose {
		level = slog.LevelDebug
	}
	log := program.NewLogger(level)
	klog.SetSlogLogger(log)
	runtimelog.SetLogger(logr.FromSlogHandler(log.Handler()))
	if o.dieWithParent {
		// The kernel's signal comes when the thread that started us ends, which may be long before its process does; so it only
		// makes us look.
		wake, err := controlplane.NotifyParentDeath()
		if err != nil {
			return fmt.Errorf("watch the parent process: %w", err)
		}
		var stop context.CancelFunc
		ctx, stop = program.WithParent(ctx, wake, parentCheck, log)
		defer stop()
	}
	assets, err := asset.Finder{BinDir: o.binDir, Log: log}.Dir(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	plane, err := controlplane.Start(ctx, controlplane.Config{
		Assets: assets, DataDir: o.dataDir, UnsafeNoFsync: o.unsafeNoFsync,
		ServiceAccountAdmission: o.serviceAccounts, Log: log,
	})
	if err == nil {
		err = errors.Join(serve(ctx, plane, o, began, log), plane.Stop())
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil // asked to stop before it was ready
	}
	if err == nil {
		log.Info("stopped")
	}
	return err
}

// serve runs the simulated node and the control API on a control plane until ctx ends or one of them fails.
func serve(ctx context.Context, plane *controlplane.Plane, o startOptions, began time.Time, log *slog.Logger) error {
	faults := fault.NewRegistry()
	simulated, err := node.New(plane.REST, node.Config{
		ReadyDelay: o.readyDelay, StopDelay: o.stopDelay, ServiceAccounts: o.serviceAccounts, Faults: faults, Log: log,
	})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.controlAddr)
	if err != nil {
		return fmt.Errorf("listen for the control API: %w", err)
	}
	server := &http.Server{Handler: control.Handler(faults, simulated), ReadHeaderTimeout: 10 * time.Second}

	ctx, cancel := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel(nil)
	running.Go(func() {
		if err := simulated.Run(ctx); err != nil {
			cancel(err)
		}
	})
	select {
	case <-simulated.Synced():
	case <-ctx.Done():
		_ = listener.Close()
		return failure(ctx)
	}
	running.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			cancel(fmt.Errorf("serve the control API: %w", err))
		}
	})
	defer func() { _ = server.Close() }()

	published, err := program.Publish(o.kubeconfig, plane.Kubeconfig, o.state, state{
		Kubeconfig: o.kubeconfig, ControlURL: "http://" + listener.Addr().String(), Server: plane.Server(),
		APIServerPID: plane.APIServerPID, EtcdPID: plane.EtcdPID,
	})
	if err != nil {
		return err
	}
	defer published.Remove()
	fmt.Printf("devcluster: ready in %.1fs kubeconfig=%s control=http://%s\n",
		time.Since(began).Seconds(), o.kubeconfig, listener.Addr())
	<-ctx.Done()
	log.Info("stopping")
	return failure(ctx)
}

// failure is why ctx ended, unless somebody just asked for the end.
func failure(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
