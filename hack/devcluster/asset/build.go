package asset

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const progressEvery = 10 * time.Second

// build compiles what is missing from the pinned modules. The flags are fixed: changed ones would compile everything again,
// and kubectl refuses a server that reports the placeholder version.
func (f Finder) build(ctx context.Context, dir string, programs []string) error {
	root, err := Root()
	if err != nil {
		return err
	}
	number := strings.Split(strings.TrimPrefix(Version, "v"), ".")
	const versionPackage = "k8s.io/component-base/version"
	ldflags := fmt.Sprintf("-X %s.gitVersion=%s -X %s.gitMajor=%s -X %s.gitMinor=%s",
		versionPackage, Version, versionPackage, number[0], versionPackage, number[1])
	for _, program := range programs {
		if info, err := os.Stat(filepath.Join(dir, program)); err == nil && info.Mode()&0o111 != 0 {
			continue
		}
		c := Compilation{
			Package: "k8s.io/kubernetes/cmd/" + program, LDFlags: ldflags, Expect: "1 to 3 minutes from cold on 2 cores",
			Module: filepath.Join(root, buildModule), Target: filepath.Join(dir, program), Log: f.Log,
		}
		switch program {
		case etcd:
			c.Package, c.LDFlags, c.Expect = "go.etcd.io/etcd/server/v3", "", "under a minute"
		case apiServer:
			c.Expect = "4 to 12 minutes from cold on 2 cores"
		}
		if err := c.Run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// A Compilation makes one static program and says how far it is.
type Compilation struct {
	// Package is what to compile, in the module in the directory Module.
	Package, Module string
	LDFlags         string
	// Target is the file to make. It appears only when it is complete.
	Target string
	// Expect says how long it takes, for the log.
	Expect string
	Log    *slog.Logger
}

// Run blocks until the program is there, the compiler has failed, or ctx has ended.
func (c Compilation) Run(ctx context.Context) error {
	if _, err := exec.LookPath("go"); err != nil {
		return errors.New("the go command is not on the PATH: install Go 1.26 or later")
	}
	began := time.Now()
	log := c.Log.With(slog.String("program", filepath.Base(c.Target)))
	log.Info("building from source", slog.String("expected", c.Expect))
	temp := c.Target + ".building"
	defer func() { _ = os.Remove(temp) }()

	args := []string{"build", "-v", "-buildvcs=false"}
	if c.LDFlags != "" {
		args = append(args, "-ldflags", c.LDFlags)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "-o", temp, c.Package)...)
	cmd.Dir = c.Module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	// The compilers are grandchildren: a group of its own lets a cancelled build take them along.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the go command: %w", err)
	}
	var out output
	var reading sync.WaitGroup
	reading.Go(func() { out.read(stderr) })
	stopTicking := tick(log, began, &out)
	reading.Wait()
	err = cmd.Wait()
	stopTicking()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("build %s: %w\n%s", filepath.Base(c.Target), err, strings.Join(out.complaints(), "\n"))
	}
	if err := os.Rename(temp, c.Target); err != nil {
		return fmt.Errorf("move %s into place: %w", filepath.Base(c.Target), err)
	}
	log.Info("built", slog.Int("packages_compiled", out.compiled()), slog.String("elapsed", elapsed(began)))
	return nil
}

// tick reports progress until the returned function is called.
func tick(log *slog.Logger, began time.Time, out *output) (stop func()) {
	done := make(chan struct{})
	var ticking sync.WaitGroup
	ticking.Go(func() {
		ticker := time.NewTicker(progressEvery)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				log.Info("still building", slog.Int("packages_compiled", out.compiled()),
					slog.String("elapsed", elapsed(began)))
			}
		}
	})
	return func() {
		close(done)
		ticking.Wait()
	}
}

func elapsed(since time.Time) string { return time.Since(since).Round(time.Second).String() }

// output sorts what `go build -v` prints: names of packages are progress, everything else is kept for the
// error message.
type output struct {
	mu       sync.Mutex
	packages int
	other    []string
}

func (o *output) read(r io.Reader) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		o.mu.Lock()
		switch {
		case strings.HasPrefix(line, "go: downloading "):
		case line != "" && !strings.HasPrefix(line, "#") && !strings.ContainsAny(line, " \t:"):
			o.packages++
		default:
			if o.other = append(o.other, line); len(o.other) > 30 {
				o.other = o.other[1:]
			}
		}
		o.mu.Unlock()
	}
	_, _ = io.Copy(io.Discard, r) // an absurdly long line must not block the build
}

func (o *output) compiled() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.packages
}

func (o *output) complaints() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.other
}
