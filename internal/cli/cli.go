// Package cli is what the programs have in common: flags, settings, logger, signals, exit code.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"sandbox-provisioner/internal/config"
	"sandbox-provisioner/internal/version"
)

// Exit codes of every program.
const (
	ExitOK      = 0
	ExitFailure = 1
	// ExitUsage is for a wrong command line or wrong settings: starting again does not help.
	ExitUsage = 2
)

// Keys of log fields.
const (
	keyProgram = "program"
	keyVersion = "version"
	keyCommit  = "commit"
	keyCause   = "cause"
	keyError   = "error"
)

// Settings are the settings of one program.
type Settings interface {
	// Log says how the program logs.
	Log() config.Telemetry
	// ProbeAddr is where the program answers /livez and /readyz.
	ProbeAddr() string
	// ApplyRuntime makes the process use as much of the machine as it is said.
	ApplyRuntime()
}

// A Program is one of the programs of this module. C are its settings.
type Program[C Settings] struct {
	Name string
	// Summary says in one sentence what the program does.
	Summary string
	// Run does it, until ctx ends. It returns nil, or the error of ctx, after an orderly end.
	Run func(ctx context.Context, cfg C, log *slog.Logger) error
}

// A Process is what the operating system gives to a program.
type Process struct {
	// Args are without the name of the program.
	Args []string
	// Lookup is os.LookupEnv.
	Lookup         func(name string) (value string, found bool)
	Stdout, Stderr io.Writer
}

// Exec is Main for the process that this is.
func (p Program[C]) Exec() (exitCode int) {
	return p.Main(Process{Args: os.Args[1:], Lookup: os.LookupEnv, Stdout: os.Stdout, Stderr: os.Stderr})
}

// Main runs the program until it ends, or until the first SIGINT or SIGTERM and the orderly end after it; a second signal
// ends the process at once. It returns the exit code.
func (p Program[C]) Main(process Process) int {
	if len(process.Args) > 0 && process.Args[0] == healthcheckCommand {
		return p.healthcheck(process, process.Args[1:])
	}
	flags := flag.NewFlagSet(p.Name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	showVersion := flags.Bool("version", false, "")
	showConfig := flags.Bool("print-config", false, "")

	err := flags.Parse(process.Args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return p.show(process, p.help)
	case err != nil:
		return p.refuse(process, err)
	case flags.NArg() > 0:
		return p.refuse(process, fmt.Errorf("unexpected argument %q", flags.Arg(0)))
	case *showVersion:
		return p.show(process, p.version)
	}

	cfg, err := config.Load[C](process.Lookup)
	if err != nil {
		fmt.Fprintln(process.Stderr, err)
		return ExitUsage
	}
	if *showConfig {
		return p.show(process, func(w io.Writer) error { return config.Print(w, cfg) })
	}
	cfg.ApplyRuntime()
	return p.run(cfg, cfg.Log().Logger(process.Stderr))
}

func (p Program[C]) run(cfg C, log *slog.Logger) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	unwatch := context.AfterFunc(ctx, func() {
		// From here on the next signal has its usual effect.
		stop()
		log.Info("stopping", slog.String(keyCause, context.Cause(ctx).Error()))
	})
	defer unwatch()

	info := version.Get()
	log.Info("starting", slog.String(keyProgram, p.Name), slog.String(keyVersion, info.Version), slog.String(keyCommit, info.Commit))
	err := p.Run(ctx, cfg, log)
	if err != nil && (ctx.Err() == nil || !errors.Is(err, ctx.Err())) {
		log.Error("failed", slog.String(keyError, err.Error()))
		return ExitFailure
	}
	return ExitOK
}

// show writes what was asked for.
func (p Program[C]) show(process Process, text func(io.Writer) error) int {
	if err := text(process.Stdout); err != nil {
		fmt.Fprintf(process.Stderr, "%s: %v\n", p.Name, err)
		return ExitFailure
	}
	return ExitOK
}

// refuse says what is wrong with the command line.
func (p Program[C]) refuse(process Process, err error) int {
	fmt.Fprintf(process.Stderr, "%s: %v; see %s --help\n", p.Name, err, p.Name)
	return ExitUsage
}

func (p Program[C]) version(w io.Writer) error {
	_, err := fmt.Fprintln(w, p.Name, version.Get())
	return err
}

func (p Program[C]) help(w io.Writer) error {
	var settings strings.Builder
	if err := config.Help[C](&settings); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, `Usage: %[1]s [--help | --version | --print-config]
       %[1]s healthcheck [--ready]

%[2]s

  --help          print this text
  --version       print the version, the commit and the version of Go
  --print-config  print the value of every setting, with secrets hidden

healthcheck asks the %[1]s that runs with the same settings whether it is alive and, with --ready, whether NATS and Kubernetes
answer it. It says so in one line, within %[4]s.

Settings are environment variables. One that is set but empty is empty; it does not fall back to its default.
%[3]s
Exit codes:
  %[5]d  ended as asked; alive, or ready
  %[6]d  failed; the last log line says why
  %[7]d  wrong command line or wrong settings; one line each says what is allowed
`, p.Name, p.Summary, settings.String(), healthcheckTimeout, ExitOK, ExitFailure, ExitUsage)
	return err
}
