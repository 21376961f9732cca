// Command node runs a real Kubernetes cluster of one node on this machine, in namespaces of its own.
package main

import (
	"context"
	"log/slog"

	"sandbox-provisioner/hack/devcluster/program"
	"sandbox-provisioner/hack/node/internal/box"
	"sandbox-provisioner/hack/node/internal/cluster"
)

const name = "node"

const usage = `node runs a real Kubernetes cluster of one node: API server, controllers, scheduler, kubelet, proxy, DNS, containerd.

Usage:
  node assets [flags]                  get everything that it consists of
  node start  [flags]                  run it until SIGINT or SIGTERM
  node load   [flags] IMAGE=PROGRAM... make images of static programs and give them to a running node
  node <command> --help                the flags of a command

It needs Linux and root. See hack/node/README.md for what it installs and how it cleans up.
`

func main() {
	program.Main(name, func(ctx context.Context, args []string) error {
		return program.Run(args, usage, map[string]func([]string) error{
			"assets":          func(args []string) error { return runAssets(ctx, args) },
			"start":           func(args []string) error { return runStart(ctx, args) },
			"load":            func(args []string) error { return runLoad(ctx, args) },
			box.InitCommand:   box.Init,
			box.InsideCommand: func([]string) error { return cluster.Inside(ctx, newLogger()) },
		})
	})
}

func newLogger() *slog.Logger { return program.NewLogger(slog.LevelInfo) }
