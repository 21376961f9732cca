package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"sandbox-provisioner/internal/config"
)

var update = flag.Bool("update", false, "rewrite the golden file")

// childVariable makes the test binary a program of its own: signals hit a whole process.
const childVariable = "CLI_TEST_CHILD"

func TestMain(m *testing.M) {
	if kind := os.Getenv(childVariable); kind != "" {
		os.Exit(child(kind))
	}
	goleak.VerifyTestMain(m)
}

func TestTheCommandLineDecidesWhatHappens(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args           []string
		env            map[string]string
		code           int
		stdout, stderr string
	}{
		"an unknown flag is refused": {
			args: []string{"--verbose"}, code: ExitUsage,
			stderr: "api: flag provided but not defined: -verbose; see api --help\n",
		},
		"an argument is refused": {
			args: []string{"serve"}, code: ExitUsage,
			stderr: "api: unexpected argument \"serve\"; see api --help\n",
		},
		"an argument after a flag is refused": {
			args: []string{"--version", "please"}, code: ExitUsage,
			stderr: "api: unexpected argument \"please\"; see api --help\n",
		},
		"a flag with a value that it does not take is refused": {
			args: []string{"--version=maybe"}, code: ExitUsage,
			stderr: "api: invalid boolean value \"maybe\" for -version: parse error; see api --help\n",
		},
		"wrong settings are refused, a line each": {
			env: map[string]string{"READ_WAIT": "", "CREATE_WAIT": "1m"}, code: ExitUsage,
			stderr: "READ_WAIT=\"\": set but empty; must be a duration, such as 500ms, 10s or 1h\n" +
				"CREATE_WAIT=1m0s: must be 0s to 25s; clients give up after 30s\n",
		},
		"wrong settings are refused instead of printed": {
			args: []string{"--print-config"}, env: map[string]string{"LOG_FORMAT": "xml"}, code: ExitUsage,
			stderr: "LOG_FORMAT=\"xml\": must be json or text\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ran := false
			code, stdout, stderr := start(test.args, test.env, func(context.Context, config.API, *slog.Logger) error {
				ran = true
				return nil
			})
			require.Equal(t, test.code, code)
			require.Equal(t, test.stdout, stdout)
			require.Equal(t, test.stderr, stderr)
			require.False(t, ran)
		})
	}
}

func TestHelpIsShownWhateverTheSettings(t *testing.T) {
	t.Parallel()
	for _, arg := range []string{"--help", "-h"} {
		code, stdout, stderr := start([]string{arg}, map[string]string{"READ_WAIT": "bad"}, nil)
		require.Equal(t, ExitOK, code)
		require.Empty(t, stderr)

		file := filepath.Join("testdata", "help.golden")
		if *update {
			require.NoError(t, os.MkdirAll("testdata", 0o755))
			require.NoError(t, os.WriteFile(file, []byte(stdout), 0o644))
		}
		want, err := os.ReadFile(file)
		require.NoError(t, err, "run the test with -update")
		require.Equal(t, string(want), stdout)
	}
}

func TestVersionIsOneLineWithTheVersionOfGo(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := start([]string{"--version"}, map[string]string{"READ_WAIT": "bad"}, nil)
	require.Equal(t, ExitOK, code)
	require.Empty(t, stderr)
	require.Regexp(t, `^api \S+ \(commit .+, `+runtime.Version()+`\)\n$`, stdout)
}

func TestPrintConfigShowsTheSettingsAndHidesTheKey(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := start([]string{"--print-config"}, map[string]string{"PROVISIONER_API_KEY": "s3cret", "READ_WAIT": "3s"}, nil)
	require.Equal(t, ExitOK, code)
	require.Empty(t, stderr)
	lines := strings.Split(stdout, "\n")
	require.Contains(t, lines, "PROVISIONER_API_KEY=******")
	require.Contains(t, lines, "READ_WAIT=3s")
	require.Contains(t, lines, "LISTEN_ADDR=0.0.0.0:8002")
}

func TestAnUnwritableOutputIsAFailure(t *testing.T) {
	t.Parallel()
	var stderr bytes.Buffer
	code := program(nil).Main(Process{Args: []string{"--help"}, Lookup: os.LookupEnv, Stdout: broken{}, Stderr: &stderr})
	require.Equal(t, ExitFailure, code)
	require.Equal(t, "api: the pipe broke\n", stderr.String())
}

func TestTheEndOfRunDecidesTheExitCode(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err  error
		code int
		last string
	}{
		"an orderly end is a success":           {nil, ExitOK, "starting"},
		"an error is a failure and logged":      {errors.New("NATS is down"), ExitFailure, "failed"},
		"a cancellation without a signal fails": {context.Canceled, ExitFailure, "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := start(nil, nil, func(context.Context, config.API, *slog.Logger) error { return test.err })
			require.Equal(t, test.code, code)
			require.Empty(t, stdout)

			lines := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
			var last map[string]any
			require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &last))
			require.Equal(t, test.last, last["msg"])
			if test.err != nil {
				require.Equal(t, test.err.Error(), last["error"])
			}
		})
	}
}

func TestRunGetsTheSettingsAndTheLogger(t *testing.T) {
	t.Parallel()
	code, _, stderr := start(nil, map[string]string{"READ_WAIT": "3s", "LOG_FORMAT": "text", "LOG_LEVEL": "debug"},
		func(_ context.Context, cfg config.API, log *slog.Logger) error {
			log.Debug("seen", slog.Duration("read_wait", cfg.HTTP.ReadWait))
			return nil
		})
	require.Equal(t, ExitOK, code)
	require.Contains(t, stderr, "level=DEBUG msg=seen read_wait=3s\n")
}

func TestTheFirstSignalEndsTheProgramInGoodOrder(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		for _, kind := range []string{childReturnsNil, childReturnsContextError} {
			t.Run(kind+" on "+signal.String(), func(t *testing.T) {
				t.Parallel()
				cmd, lines := startChild(t, kind)
				require.NoError(t, cmd.Process.Signal(signal))
				var rest []string
				for lines.Scan() {
					rest = append(rest, lines.Text())
				}
				require.NoError(t, cmd.Wait(), "the exit code must be 0")
				require.NotContains(t, strings.Join(rest, "\n"), "failed")
			})
		}
	}
}

func TestASecondSignalEndsTheProcessAtOnce(t *testing.T) {
	t.Parallel()
	cmd, lines := startChild(t, childHangs)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.True(t, lines.Scan())
	require.Contains(t, lines.Text(), `"msg":"stopping","cause":"terminated signal received"`)

	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit)
	require.Equal(t, syscall.SIGTERM, exit.Sys().(syscall.WaitStatus).Signal())
}

// Go's own defaults are all processors of the machine, and a collection as soon as there is as much garbage as is in use.
func TestAProgramUsesOneProcessorAndRoomForGarbageUnlessItIsToldOtherwise(t *testing.T) {
	t.Parallel()
	for env, want := range map[string]string{
		"":             `"processors":1,"gc_percent":400}`,
		"GOMAXPROCS=3": `"processors":3,"gc_percent":400}`,
		"GOGC=50":      `"processors":1,"gc_percent":50}`,
		"GOGC=off":     `"processors":1,"gc_percent":-1}`,
	} {
		t.Run(env, func(t *testing.T) {
			t.Parallel()
			cmd, lines := startChild(t, childReturnsNil, env)
			require.Contains(t, lines.Text(), want)
			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
			for lines.Scan() {
			}
			require.NoError(t, cmd.Wait())
		})
	}
}

const (
	childReturnsNil          = "returns nil"
	childReturnsContextError = "returns the error of its context"
	childHangs               = "hangs"
)

// child is a program that ends in the way of kind.
func child(kind string) int {
	return program(func(ctx context.Context, _ config.API, log *slog.Logger) error {
		log.Info("running", slog.Int("processors", runtime.GOMAXPROCS(0)), slog.Int("gc_percent", debug.SetGCPercent(100)))
		<-ctx.Done()
		switch kind {
		case childReturnsContextError:
			return fmt.Errorf("serve: %w", ctx.Err())
		case childHangs:
			select {}
		}
		return nil
	}).Exec()
}

// startChild returns when the child waits for its signal.
func startChild(t *testing.T, kind string, env ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(env, childVariable+"="+kind)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if strings.Contains(lines.Text(), `"msg":"running"`) {
			return cmd, lines
		}
	}
	require.Fail(t, "the child ended before it ran")
	return nil, nil
}

func start(args []string, env map[string]string, run func(context.Context, config.API, *slog.Logger) error) (code int, stdout, stderr string) {
	var out, log bytes.Buffer
	code = program(run).Main(Process{
		Args: args,
		Lookup: func(name string) (string, bool) {
			value, found := env[name]
			return value, found
		},
		Stdout: &out,
		Stderr: &log,
	})
	return code, out.String(), log.String()
}

func program(run func(context.Context, config.API, *slog.Logger) error) Program[config.API] {
	return Program[config.API]{Name: "api", Summary: "Does it.", Run: run}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("the pipe broke") }
