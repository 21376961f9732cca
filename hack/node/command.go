package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"

	"sandbox-provisioner/hack/node/internal/box"
	"sandbox-provisioner/hack/node/internal/cluster"
)

const usage = `node runs a real Kubernetes cluster of one node: API server, controllers, scheduler, kubelet, proxy, DNS, containerd.

Usage:
  node assets [flags]                  get everything that it consists of
  node start  [flags]                  run it until SIGINT or SIGTERM
  node load   [flags] IMAGE=PROGRAM... make images of static programs and give them to a running node
  node <command> --help                the flags of a command

It needs Linux and root. See hack/node/README.md for what it installs and how it cleans up.
`

// usageError is a mistake on the command line: exit code 2.
type usageError struct{ reason string }

func (e usageError) Error() string { return e.reason }

func run(ctx context.Context, args []string) error {
	command := ""
	if len(args) > 0 {
		command, args = args[0], args[1:]
	}
	switch command {
	case "assets":
		return runAssets(ctx, args)
	case "start":
		return runStart(ctx, args)
	case "load":
		return runLoad(ctx, args)
	case box.InitCommand:
		return box.Init(args)
	case box.InsideCommand:
		return cluster.Inside(ctx, newLogger())
	case "help", "-h", "-help", "--help":
		_, err := io.WriteString(os.Stdout, usage)
		return err
	case "":
		return usageError{"no command given"}
	default:
		return usageError{fmt.Sprintf("unknown command %q", command)}
	}
}

// parse reads a command's flags.
func parse(flags *flag.FlagSet, about string, args []string) error {
	flags.SetOutput(io.Discard)
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stdout, "%s\n\nUsage: node %s [flags]\n\nFlags:\n", about, flags.Name())
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
		return err
	}
	if err != nil {
		return usageError{err.Error()}
	}
	return nil
}

func noMore(flags *flag.FlagSet) error {
	if flags.NArg() > 0 {
		return usageError{fmt.Sprintf("unexpected argument %q", flags.Arg(0))}
	}
	return nil
}

// newLogger writes to stderr: stdout carries only what programs read.
func newLogger() *slog.Logger { return slog.New(slog.NewTextHandler(os.Stderr, nil)) }
