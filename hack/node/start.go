package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"sandbox-provisioner/hack/devcluster/asset"
	"sandbox-provisioner/hack/devcluster/program"
	"sandbox-provisioner/hack/node/internal/box"
	"sandbox-provisioner/hack/node/internal/cluster"
)

const aboutStart = "Gets what is missing (see assets), runs the node until SIGINT or SIGTERM, then removes all traces.\n" +
	"Prints one line on stdout when Pods can run and cluster DNS answers."

type startOptions struct {
	kubeconfig, state string
	dieWithParent     bool
}

func parseStart(args []string) (o startOptions, err error) {
	flags := flag.NewFlagSet("start", flag.ContinueOnError)
	flags.StringVar(&o.kubeconfig, "kubeconfig", "",
		"file that gets the admin's kubeconfig (default <repository>/bin/node.kubeconfig)")
	flags.StringVar(&o.state, "state", "", "file that gets a JSON description of the node when it is ready")
	flags.BoolVar(&o.dieWithParent, "die-with-parent", false, "stop when the process that started this one is gone")
	if err := program.ParseAll(flags, name, aboutStart, args); err != nil {
		return o, err
	}
	if o.kubeconfig == "" {
		root, err := asset.Root()
		if err != nil {
			return o, fmt.Errorf("choose a place for the kubeconfig: %w", err)
		}
		o.kubeconfig = filepath.Join(root, "bin", "node.kubeconfig")
	}
	o.kubeconfig, err = filepath.Abs(o.kubeconfig)
	return o, err
}

func runStart(ctx context.Context, args []string) error {
	o, err := parseStart(args)
	if err != nil {
		return err
	}
	log := newLogger()
	if o.dieWithParent {
		var stop context.CancelFunc
		ctx, stop = program.WithParent(ctx, nil, parentCheck, log)
		defer stop()
	}
	parts, err := getAssets(ctx, log)
	if err == nil {
		err = serve(ctx, o, parts, log)
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil // asked to stop before it was ready
	}
	if err == nil {
		log.Info("stopped, and removed everything")
	}
	return err
}

// serve runs the node until ctx ends or it fails.
func serve(ctx context.Context, o startOptions, parts assets, log *slog.Logger) (err error) {
	began := time.Now()
	node, err := box.Start(log, func(place box.Layout) any {
		return cluster.Order{Layout: place, Bin: parts.bin, CNI: parts.cni, Images: parts.images}
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.Stop()) }()
	log.Info("starting the node", slog.String("dir", node.Dir), slog.String("address", node.Address))
	var ready cluster.Ready
	if err := node.Report(ctx, &ready); err != nil {
		return err
	}
	if ready.Error != "" {
		return errors.New(ready.Error)
	}
	published, err := program.Publish(o.kubeconfig, ready.Kubeconfig, o.state, state{
		Kubeconfig: o.kubeconfig, Server: ready.Server, Address: node.Address, PID: os.Getpid(),
		Containerd: cluster.Socket(node.Dir), Dir: node.Dir, Root: box.Own(node.Dir, ""),
	})
	if err != nil {
		return err
	}
	defer published.Remove()
	fmt.Printf("node: ready in %.1fs kubeconfig=%s address=%s\n", time.Since(began).Seconds(), o.kubeconfig, node.Address)
	select {
	case <-ctx.Done():
		log.Info("stopping")
		return nil
	case <-node.Ended():
		return errors.New("the node has ended")
	}
}

const parentCheck = 200 * time.Millisecond
