package asset

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/tools/setup-envtest/remote"
)

// None of these tests is parallel: each changes the environment or the index's address.

func finder(t *testing.T) (Finder, *bytes.Buffer) {
	t.Helper()
	t.Setenv(EnvDir, "")
	log := &bytes.Buffer{}
	return Finder{BinDir: t.TempDir(), Log: slog.New(slog.NewTextHandler(log, nil))}, log
}

func fill(t *testing.T, dir string, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if err := os.WriteFile(filepath.Join(dir, program), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// serveIndex stands in for the download site.
func serveIndex(t *testing.T, handler http.HandlerFunc) {
	t.Helper()
	server := httptest.NewServer(handler)
	before := remote.DefaultIndexURL
	remote.DefaultIndexURL = server.URL + "/index.yaml"
	t.Cleanup(func() {
		remote.DefaultIndexURL = before
		server.Close()
	})
}

// fakeGo puts a go command on the PATH that does what the script says; $OUT is the file to make.
func fakeGo(t *testing.T, script string) (calls func() int) {
	t.Helper()
	dir := t.TempDir()
	counter := filepath.Join(dir, "calls")
	content := "#!/bin/sh\necho \"$*\" >>" + counter + "\n" +
		`while [ "$1" != -o ]; do shift; done; OUT=$2` + "\n" + script + "\n"
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() int {
		lines, _ := os.ReadFile(counter)
		return strings.Count(string(lines), "\n")
	}
}

func TestADirectoryNamedByTheEnvironmentIsUsedWhenItHoldsBoth(t *testing.T) {
	f, _ := finder(t)
	dir := t.TempDir()
	fill(t, dir, "etcd", "kube-apiserver")
	t.Setenv(EnvDir, dir)
	if got, err := f.Dir(t.Context()); err != nil || got != dir {
		t.Errorf("wanted %s, got %s, error %v", dir, got, err)
	}
}

func TestAnIncompleteDirectoryNamedByTheEnvironmentIsPassedOverWithAWarning(t *testing.T) {
	f, log := finder(t)
	fill(t, f.BinDir, "etcd", "kube-apiserver")
	dir := t.TempDir()
	fill(t, dir, "etcd")
	t.Setenv(EnvDir, dir)
	if got, err := f.Dir(t.Context()); err != nil || got != f.BinDir {
		t.Errorf("wanted %s, got %s, error %v", f.BinDir, got, err)
	}
	if !strings.Contains(log.String(), "level=WARN") {
		t.Errorf("wanted a warning, got %s", log)
	}
}

func TestPrebuiltProgramsAreDownloadedAndTheirSumIsChecked(t *testing.T) {
	for name, c := range map[string]struct {
		sum      func([]byte) string
		compiled bool
	}{
		"the right sum": {sum: func(b []byte) string { return fmt.Sprintf("%x", sha512.Sum512(b)) }},
		"a wrong sum":   {sum: func([]byte) string { return strings.Repeat("0", 128) }, compiled: true},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := finder(t)
			calls := fakeGo(t, `echo built >"$OUT"; chmod +x "$OUT"`)
			archive := archiveOf(t, "controller-tools/envtest/etcd", "controller-tools/envtest/kube-apiserver")
			serveIndex(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/index.yaml" {
					_, _ = w.Write(archive)
					return
				}
				fmt.Fprintf(w, "releases:\n  v1.36.9:\n    envtest-v1.36.9-%s-%s.tar.gz:\n      hash: %s\n      selfLink: http://%s/archive\n",
					runtime.GOOS, runtime.GOARCH, c.sum(archive), r.Host)
			})
			dir, err := f.Dir(t.Context())
			if err != nil || !complete(dir, controlPlane) {
				t.Fatalf("wanted both programs, got error %v", err)
			}
			if compiled := calls() > 0; compiled != c.compiled {
				t.Errorf("wanted compiled %t, got %t", c.compiled, compiled)
			}
		})
	}
}

func archiveOf(t *testing.T, names ...string) []byte {
	t.Helper()
	var buf bytes.Buffer
	plain := gzip.NewWriter(&buf)
	files := tar.NewWriter(plain)
	for _, name := range names {
		err := files.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: 2, Typeflag: tar.TypeReg})
		_, writeErr := files.Write([]byte("hi"))
		if err := errors.Join(err, writeErr); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(files.Close(), plain.Close()); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestConcurrentCallersBuildEachProgramOnce(t *testing.T) {
	f, _ := finder(t)
	serveIndex(t, http.NotFound)
	calls := fakeGo(t, `echo some/package >&2; echo built >"$OUT"; chmod +x "$OUT"`)
	f.Log = slog.New(slog.DiscardHandler)
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			if dir, err := f.Dir(t.Context()); err != nil || !complete(dir, controlPlane) {
				t.Errorf("wanted both programs, got error %v", err)
			}
		})
	}
	callers.Wait()
	if calls() != 2 {
		t.Errorf("wanted 2 builds, got %d", calls())
	}
}

func TestAFailedBuildSaysWhatTheCompilerSaidAndTheWayOut(t *testing.T) {
	f, log := finder(t)
	serveIndex(t, http.NotFound)
	fakeGo(t, `echo "main.go:1:1: no coffee" >&2; exit 1`)
	_, err := f.Dir(t.Context())
	for _, part := range []string{"no coffee", EnvDir, "setup-envtest"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("wanted an error that mentions %q, got %v", part, err)
		}
	}
	if lines := strings.Count(log.String(), "cannot be downloaded"); lines != 1 {
		t.Errorf("wanted one line about the download, got %d", lines)
	}
	if left, _ := os.ReadDir(f.BinDir); len(left) != 1 || left[0].Name() != ".lock" {
		t.Errorf("wanted nothing but the lock left behind, got %v", left)
	}
}

func TestACancelledBuildEndsAtOnceWithItsChildren(t *testing.T) {
	f, _ := finder(t)
	serveIndex(t, http.NotFound)
	calls := fakeGo(t, `sleep 60 & wait`)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := f.Dir(ctx)
		done <- err
	}()
	for deadline := time.Now().Add(10 * time.Second); calls() == 0; {
		if time.Now().After(deadline) {
			t.Fatal("wanted the build to start within 10 s")
		}
		runtime.Gosched()
	}
	cancel()
	select {
	case err := <-done: // it comes only when nobody holds the compiler's output any more
		if !errors.Is(err, context.Canceled) {
			t.Errorf("wanted the cancellation, got %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("wanted the build to end within 10 s")
	}
}
