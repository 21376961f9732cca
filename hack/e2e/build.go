package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// outDir is for programs that only this command needs.
const outDir = "bin/e2e"

// programs are built with the flags of the product's images (hack/docker/compile.sh). Helm is the Makefile's.
var programs = []struct{ dir, pkg, out string }{
	{"hack/node", ".", "bin/node"},
	{".", "./cmd/api", outDir + "/api"},
	{".", "./cmd/worker", outDir + "/worker"},
	{".", "github.com/nats-io/nats-server/v2", outDir + "/nats-server"},
	{".", "./hack/e2e/sandbox", outDir + "/sandbox"},
	{".", "./hack/e2e/gateway", outDir + "/gateway"},
}

func buildPrograms(ctx context.Context) error {
	for _, p := range programs {
		say("building %s", filepath.Base(p.out))
		out, err := filepath.Abs(p.out)
		if err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, "go", "build", "-v", "-buildvcs=false", "-tags", "nomsgpack", "-ldflags", "-s -w", "-o", out, p.pkg)
		cmd.Dir, cmd.Env = p.dir, append(os.Environ(), "CGO_ENABLED=0")
		if err := runBuild(cmd); err != nil {
			return fmt.Errorf("build %s: %w", filepath.Base(p.out), err)
		}
	}
	return nil
}

// runBuild says every now and then how many packages are compiled: some of these take minutes at first.
func runBuild(cmd *exec.Cmd) error {
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var complaints strings.Builder
	packages, last := 0, time.Now()
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if line := lines.Text(); strings.ContainsAny(line, " :\t") {
			complaints.WriteString("\n" + line)
		} else {
			packages++
		}
		if time.Since(last) > 10*time.Second {
			last = time.Now()
			say("  %d packages compiled", packages)
		}
	}
	_, _ = io.Copy(io.Discard, stderr)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%w%s", err, complaints.String())
	}
	return nil
}
