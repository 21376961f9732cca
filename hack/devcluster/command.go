package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
)

const usage = `devcluster runs a local Kubernetes control plane (etcd, kube-apiserver) with one simulated node.

Usage:
  devcluster assets [flags]   get kube-apiserver and etcd, print the directory that holds them
  devcluster start  [flags]   run the cluster until SIGINT or SIGTERM
  devcluster <command> --help the flags of a command

See hack/devcluster/README.md for what the simulated node does and how to make Pods misbehave.
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
	case "help", "-h", "-help", "--help":
		_, err := io.WriteString(os.Stdout, usage)
		return err
	case "":
		return usageError{"no command given"}
	default:
		return usageError{fmt.Sprintf("unknown command %q", command)}
	}
}

// parse reads a command's flags; nothing may be left over.
func parse(flags *flag.FlagSet, about string, args []string) error {
	flags.SetOutput(io.Discard)
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stdout, "%s\n\nUsage: devcluster %s [flags]\n\nFlags:\n", about, flags.Name())
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
		return err
	}
	if err != nil {
		return usageError{err.Error()}
	}
	if flags.NArg() > 0 {
		return usageError{fmt.Sprintf("unexpected argument %q", flags.Arg(0))}
	}
	return nil
}

// newLogger writes to stderr: stdout carries only what programs read.
func newLogger(verbose bool) *slog.Logger {
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}
