package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"

	"sandbox-provisioner/hack/node/internal/box"
)

// Import gives the images in an archive to the containerd that listens on socket.
func Import(ctx context.Context, socket, archive string) error {
	out, err := exec.CommandContext(ctx, "ctr", "--address", socket, "--namespace", "k8s.io", "images", "import", archive).CombinedOutput()
	if err != nil {
		return fmt.Errorf("import %s: %w\n%s", filepath.Base(archive), err, bytes.TrimSpace(out))
	}
	return nil
}

// Socket is where containerd of the box in dir listens, for somebody outside.
func Socket(dir string) string { return box.Own(dir, ContainerdSocket) }

func (n *node) importImages(ctx context.Context) error {
	err := eventually(ctx, "containerd", func(ctx context.Context) (bool, error) {
		out, err := exec.CommandContext(ctx, "ctr", "--address", ContainerdSocket, "version").CombinedOutput()
		if err != nil {
			return false, fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	for _, archive := range n.Images {
		if err := Import(ctx, ContainerdSocket, archive); err != nil {
			return err
		}
	}
	return nil
}
