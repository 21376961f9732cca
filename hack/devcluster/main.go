// Command devcluster runs a local Kubernetes control plane with one simulated node, for development and tests.
package main

import (
	"context"

	"sandbox-provisioner/hack/devcluster/internal/controlplane"
	"sandbox-provisioner/hack/devcluster/program"
)

const name = "devcluster"

const usage = `devcluster runs a local Kubernetes control plane (etcd, kube-apiserver) with one simulated node.

Usage:
  devcluster assets [flags]   get kube-apiserver and etcd, print the directory that holds them
  devcluster start  [flags]   run the cluster until SIGINT or SIGTERM
  devcluster <command> --help the flags of a command

See hack/devcluster/README.md for what the simulated node does and how to make Pods misbehave.
`

func main() {
	controlplane.Shim()
	program.Main(name, func(ctx context.Context, args []string) error {
		return program.Run(args, usage, map[string]func([]string) error{
			"assets": func(args []string) error { return runAssets(ctx, args) },
			"start":  func(args []string) error { return runStart(ctx, args) },
		})
	})
}
