// Package program is what programs that run a cluster have in common: their command line, their end, and how others find them.
package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// usageError is a mistake on the command line: exit code 2.
type usageError struct{ reason string }

func (e usageError) Error() string { return e.reason }

// Misuse is the error for a mistake on the command line.
func Misuse(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }

// Main runs a program until it ends, or until SIGINT or SIGTERM ends its context, and exits.
func Main(name string, run func(ctx context.Context, args []string) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once; the kernel then takes along what it has started.
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.As(err, new(usageError)):
		fmt.Fprintf(os.Stderr, "%s: %v (see %s --help)\n", name, err, name)
		os.Exit(2)
	default:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Run runs the command that args begin with. usage is what help shows.
func Run(args []string, usage string, commands map[string]func(args []string) error) error {
	if len(args) == 0 {
		return Misuse("no command given")
	}
	switch command := args[0]; command {
	case "help", "-h", "-help", "--help":
		_, err := io.WriteString(os.Stdout, usage)
		return err
	default:
		run, known := commands[command]
		if !known {
			return Misuse("unknown command %q", command)
		}
		return run(args[1:])
	}
}

// Parse reads the flags of a command, whose name is that of flags. about is what its help says first. The error is flag.ErrHelp after
// the help has been shown, or a Misuse.
func Parse(flags *flag.FlagSet, program, about string, args []string) error {
	flags.SetOutput(io.Discard)
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stdout, "%s\n\nUsage: %s %s [flags]\n\nFlags:\n", about, program, flags.Name())
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
		return err
	}
	if err != nil {
		return Misuse("%v", err)
	}
	return nil
}

// ParseAll is Parse for a command that takes nothing but flags.
func ParseAll(flags *flag.FlagSet, program, about string, args []string) error {
	if err := Parse(flags, program, about, args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return Misuse("unexpected argument %q", flags.Arg(0))
	}
	return nil
}

// NewLogger writes to stderr: stdout carries only what programs read.
func NewLogger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

// WithParent returns a context that ends when this process gets another parent. It looks as often as every, and when wake does.
func WithParent(ctx context.Context, wake <-chan os.Signal, every time.Duration, log *slog.Logger) (context.Context, context.CancelFunc) {
	parent := os.Getppid()
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-wake:
			case <-ticker.C:
			}
			if os.Getppid() != parent {
				log.Info("parent process is gone")
				cancel()
				return
			}
		}
	}()
	return ctx, cancel
}
