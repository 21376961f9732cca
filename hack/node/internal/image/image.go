// Package image makes container images of static programs.
package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Write makes an image of one static program and nothing else, which runs as uid 1000, and writes it to file in the form of
// `docker save`.
func Write(file, ref, program string) error {
	tag, err := name.NewTag(ref)
	if err != nil {
		return fmt.Errorf("image name: %w", err)
	}
	entry := "/" + filepath.Base(program)
	files, err := layer(program, entry)
	if err != nil {
		return fmt.Errorf("image %s: %w", ref, err)
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil }
	// Compressing would take longer than everything else, for a way of a few metres.
	content, err := tarball.LayerFromOpener(open, tarball.WithCompression(compression.None))
	if err != nil {
		return fmt.Errorf("image %s: %w", ref, err)
	}
	img, err := mutate.AppendLayers(empty.Image, content)
	if err != nil {
		return fmt.Errorf("image %s: %w", ref, err)
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		return fmt.Errorf("image %s: %w", ref, err)
	}
	cfg = cfg.DeepCopy()
	cfg.OS, cfg.Architecture = "linux", runtime.GOARCH
	cfg.Config.Entrypoint, cfg.Config.User = []string{entry}, "1000:1000"
	if img, err = mutate.ConfigFile(img, cfg); err != nil {
		return fmt.Errorf("image %s: %w", ref, err)
	}
	if err := tarball.WriteToFile(file, tag, img); err != nil {
		return fmt.Errorf("image %s: %w", ref, err)
	}
	return nil
}

// layer is the archive of the program alone.
func layer(program, entry string) ([]byte, error) {
	content, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	var files bytes.Buffer
	archive := tar.NewWriter(&files)
	header := &tar.Header{Name: entry[1:], Mode: 0o755, Size: int64(len(content)), Typeflag: tar.TypeReg}
	if err := archive.WriteHeader(header); err != nil {
		return nil, err
	}
	if _, err := archive.Write(content); err != nil {
		return nil, err
	}
	return files.Bytes(), archive.Close()
}
