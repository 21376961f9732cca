package asset

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/tools/setup-envtest/remote"
	"sigs.k8s.io/controller-runtime/tools/setup-envtest/versions"
)

const (
	// indexTimeout is short: it only finds out whether the internet is there.
	indexTimeout    = 10 * time.Second
	downloadTimeout = 5 * time.Minute
)

// download gets the newest prebuilt patch release of our minor version through setup-envtest's client,
// which checks the archive's SHA-512.
func (f Finder) download(ctx context.Context, dir string) error {
	client := &remote.HTTPClient{Log: logr.Discard()}
	indexCtx, cancel := context.WithTimeout(ctx, indexTimeout)
	defer cancel()
	sets, err := client.ListVersions(indexCtx)
	if err != nil {
		return err
	}
	version, platform, err := newest(sets)
	if err != nil {
		return err
	}
	f.Log.Info("downloading prebuilt control plane", slog.String("version", version.String()), slog.String("dir", dir))

	archive, err := os.CreateTemp(dir, ".download-*")
	if err != nil {
		return err
	}
	defer func() {
		_ = archive.Close()
		_ = os.Remove(archive.Name())
	}()
	getCtx, cancelGet := context.WithTimeout(ctx, downloadTimeout)
	defer cancelGet()
	if err := client.GetVersion(getCtx, version, platform, archive); err != nil {
		return err
	}
	if _, err := archive.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return unpack(archive, dir)
}

func newest(sets []versions.Set) (versions.Concrete, versions.PlatformItem, error) {
	minor := strings.TrimPrefix(Version[:strings.LastIndex(Version, ".")+1], "v")
	for _, set := range sets { // newest first
		if !strings.HasPrefix(set.Version.String(), minor) {
			continue
		}
		for _, item := range set.Platforms {
			if item.OS == runtime.GOOS && item.Arch == runtime.GOARCH {
				return set.Version, item, nil
			}
		}
	}
	return versions.Concrete{}, versions.PlatformItem{},
		fmt.Errorf("the index has no %sx for %s/%s", minor, runtime.GOOS, runtime.GOARCH)
}

// unpack extracts the two programs; whatever else the archive holds is left in it.
func unpack(archive io.Reader, dir string) error {
	plain, err := gzip.NewReader(archive)
	if err != nil {
		return fmt.Errorf("read the archive: %w", err)
	}
	files := tar.NewReader(plain)
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the archive: %w", err)
		}
		name := path.Base(header.Name)
		if header.Typeflag != tar.TypeReg || (name != apiServer && name != etcd) {
			continue
		}
		if err := install(filepath.Join(dir, name), files); err != nil {
			return err
		}
	}
	if !complete(dir, controlPlane) {
		return errors.New("the archive lacks kube-apiserver or etcd")
	}
	return nil
}

// install writes a program under a temporary name first, so that nobody ever starts half of it.
func install(target string, content io.Reader) error {
	file, err := os.CreateTemp(filepath.Dir(target), "."+filepath.Base(target)+"-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	_, err = io.Copy(file, content)
	if err := errors.Join(err, file.Chmod(0o755), file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", target, err)
	}
	return os.Rename(file.Name(), target)
}
