package program

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// A Publication is the files that tell others how to reach a cluster.
type Publication struct{ files map[string][]byte }

// Publish writes a kubeconfig, and state as JSON unless its path is empty. It writes both or none, each at once, readable by the
// owner only.
func Publish(kubeconfigPath string, kubeconfig []byte, statePath string, state any) (Publication, error) {
	p := Publication{files: map[string][]byte{}}
	if err := p.write(kubeconfigPath, kubeconfig); err != nil {
		return p, fmt.Errorf("write the kubeconfig: %w", err)
	}
	if statePath == "" {
		return p, nil
	}
	content, err := json.Marshal(state)
	if err == nil {
		err = p.write(statePath, append(content, '\n'))
	}
	if err != nil {
		p.Remove()
		return p, fmt.Errorf("write the state file: %w", err)
	}
	return p, nil
}

func (p Publication) write(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	_, err = file.Write(content)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	p.files[path] = content
	return os.Rename(file.Name(), path)
}

// Remove takes back what nobody has replaced since: another cluster may have been published to the same path.
func (p Publication) Remove() {
	for path, content := range p.files {
		if now, err := os.ReadFile(path); err == nil && bytes.Equal(now, content) {
			_ = os.Remove(path)
		}
	}
}
