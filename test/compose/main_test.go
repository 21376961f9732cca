// Package compose_test starts docker-compose.yaml as an operator does, with the images that are built here, against a development
// cluster.
package compose_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/testenv"
)

// root is where docker-compose.yaml is.
const root = "../.."

func TestMain(m *testing.M) { testenv.Main(m) }

// needEngine skips the test on a machine that cannot run it, and fails it in CI, which has to. It returns when the images are there.
func needEngine(t *testing.T) {
	t.Helper()
	if err := usable(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("this cannot be tested, and CI must; run make compose-test: %v", err)
		}
		t.Skipf("NOT TESTED: %v; run make compose-test", err)
	}
	require.NoError(t, images())
}

var usable = sync.OnceValue(func() error {
	if os.Geteuid() != 0 {
		return errors.New("only root can kill what runs in a container")
	}
	if _, err := command(context.Background(), 10*time.Second, "docker", "info"); err != nil {
		return fmt.Errorf("there is no Docker engine: %w", err)
	}
	return composeProgram().err
})

var images = sync.OnceValue(func() error {
	sizes, err := command(context.Background(), 10*time.Minute, root+"/hack/docker/images.sh", "api", "worker", "standalone", "nats")
	fmt.Println(sizes)
	return err
})

// composeProgram is docker's own compose, or the older program of its own.
var composeProgram = sync.OnceValue(func() (found struct {
	args []string
	err  error
}) {
	for _, args := range [][]string{{"docker", "compose"}, {"docker-compose"}} {
		if _, err := command(context.Background(), 10*time.Second, args[0], append(args[1:len(args):len(args)], "version")...); err == nil {
			found.args = args
			return found
		}
	}
	found.err = errors.New("there is no docker compose")
	return found
})

// command returns what a command has printed, on success and in the error.
func command(ctx context.Context, within time.Duration, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return output(exec.CommandContext(ctx, name, args...))
}

func output(cmd *exec.Cmd) (string, error) {
	out, err := cmd.CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return text, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, text)
	}
	return text, nil
}
