package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"sandbox-provisioner/hack/devcluster/asset"
	"sandbox-provisioner/hack/devcluster/program"
	"sandbox-provisioner/hack/node/internal/cluster"
	"sandbox-provisioner/hack/node/internal/debian"
	"sandbox-provisioner/hack/node/internal/image"
)

const aboutAssets = "Gets everything that a node consists of: installs Debian packages, builds the programs of Kubernetes and\n" +
	"CoreDNS from their Go modules (minutes, once), and makes two images."

func runAssets(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("assets", flag.ContinueOnError)
	if err := program.ParseAll(flags, name, aboutAssets, args); err != nil {
		return err
	}
	_, err := getAssets(ctx, newLogger())
	return err
}

// assets is what a node consists of.
type assets struct {
	// bin holds the programs of Kubernetes, cni the network plugins.
	bin, cni string
	// images are archives.
	images []string
}

func getAssets(ctx context.Context, log *slog.Logger) (assets, error) {
	if runtime.GOOS != "linux" {
		return assets{}, errors.New("a node needs Linux: containers and the rules of its network are Linux'")
	}
	if os.Getuid() != 0 {
		return assets{}, errors.New("a node needs root: it makes namespaces, mounts and network devices")
	}
	root, err := asset.Root()
	if err != nil {
		return assets{}, err
	}
	var a assets
	if a.cni, err = debian.Ensure(ctx, log); err != nil {
		return a, err
	}
	if a.bin, err = (asset.Finder{Log: log}).NodeDir(ctx); err != nil {
		return a, err
	}
	for _, own := range []struct{ name, module, image, expect string }{
		{"pause", ".", cluster.PauseImage, "seconds"},
		{"coredns", "coredns", cluster.DNSImage, "1 to 4 minutes from cold on 2 cores"},
	} {
		c := asset.Compilation{
			Package: "sandbox-provisioner/hack/node/" + own.name, Module: filepath.Join(root, "hack", "node", own.module),
			LDFlags: "-s -w", Target: filepath.Join(root, "bin", "node-images", own.name), Expect: own.expect, Log: log,
		}
		archive, err := imageOf(ctx, c, own.image, filepath.Join(root, "hack", "node", own.name))
		if err != nil {
			return a, err
		}
		a.images = append(a.images, archive)
	}
	return a, nil
}

// imageOf makes a program and an image of it, unless the image is there and newer than the source.
func imageOf(ctx context.Context, c asset.Compilation, ref, source string) (archive string, err error) {
	archive = c.Target + ".tar"
	current, err := newer(archive, filepath.Join(c.Module, "go.mod"), source)
	if err != nil || current {
		return archive, err
	}
	if err := os.MkdirAll(filepath.Dir(c.Target), 0o755); err != nil {
		return "", err
	}
	if err := c.Run(ctx); err != nil {
		return "", err
	}
	return archive, image.Write(archive, ref, c.Target)
}

// newer tells whether file exists and is newer than everything in the others.
func newer(file string, others ...string) (bool, error) {
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var last time.Time
	for _, other := range others {
		err := filepath.WalkDir(other, func(_ string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := entry.Info()
			if err == nil && !entry.IsDir() && info.ModTime().After(last) {
				last = info.ModTime()
			}
			return err
		})
		if err != nil {
			return false, err
		}
	}
	return info.ModTime().After(last), nil
}

const aboutLoad = "Makes an image of each static program and gives it to a running node, as\n" +
	"  node load --state node.json docker.io/library/hello:1=bin/hello\n" +
	"It contains nothing but the program, which is its entry point and runs as uid 1000."

func runLoad(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	stateFile := flags.String("state", "", "the file that `node start --state` has written")
	if err := program.Parse(flags, name, aboutLoad, args); err != nil {
		return err
	}
	if *stateFile == "" || flags.NArg() == 0 {
		return program.Misuse("load needs --state and an image")
	}
	s, err := readState(*stateFile)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "node-load-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	archive := filepath.Join(dir, "image.tar")
	for _, arg := range flags.Args() {
		ref, file, ok := strings.Cut(arg, "=")
		if !ok {
			return program.Misuse("%q is not IMAGE=PROGRAM", arg)
		}
		if err := image.Write(archive, ref, file); err != nil {
			return err
		}
		if err := cluster.Import(ctx, s.Containerd, archive); err != nil {
			return err
		}
		fmt.Println(ref)
	}
	return nil
}
