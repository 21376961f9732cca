package image_test

import (
	"archive/tar"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"sandbox-provisioner/hack/node/internal/image"
)

func TestAnImageHoldsTheProgramAloneAndRunsItWithoutRoot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program, archive := filepath.Join(dir, "hello"), filepath.Join(dir, "hello.tar")
	if err := os.WriteFile(program, []byte("binary"), 0o644); err != nil {
		t.Fatal(err)
	}
	const ref = "docker.io/library/hello:1"
	if err := image.Write(archive, ref, program); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(ref)
	if err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(archive, &tag)
	if err != nil {
		t.Fatalf("wanted an image named %s: %v", ref, err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(config.Config.Entrypoint, []string{"/hello"}) || config.Config.User != "1000:1000" {
		t.Errorf("wanted /hello as user 1000:1000, got %v as %q", config.Config.Entrypoint, config.Config.User)
	}
	files := tar.NewReader(mutate.Extract(img))
	file, err := files.Next()
	if err != nil {
		t.Fatal(err)
	}
	if file.Name != "hello" || file.Mode&0o111 != 0o111 || file.Size != 6 {
		t.Errorf("wanted the program, executable, got %s %o with %d bytes", file.Name, file.Mode, file.Size)
	}
	if more, err := files.Next(); err == nil {
		t.Errorf("wanted nothing else, got %s", more.Name)
	}
}

func TestANameThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	if err := image.Write(filepath.Join(t.TempDir(), "x.tar"), "Not A Name", os.Args[0]); err == nil {
		t.Error("wanted an error")
	}
}
