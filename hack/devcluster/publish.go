package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"sandbox-provisioner/hack/devcluster/internal/controlplane"
)

// state is what --state writes.
type state struct {
	Kubeconfig   string `json:"kubeconfig"`
	ControlURL   string `json:"control_url"`
	Server       string `json:"server"`
	APIServerPID int    `json:"apiserver_pid"`
	EtcdPID      int    `json:"etcd_pid"`
}

// publication is the files that tell others how to reach the cluster.
type publication struct{ files map[string][]byte }

func publish(o startOptions, plane *controlplane.Plane, controlURL string) (publication, error) {
	p := publication{files: map[string][]byte{}}
	if err := p.write(o.kubeconfig, plane.Kubeconfig); err != nil {
		return p, fmt.Errorf("write the kubeconfig: %w", err)
	}
	if o.state == "" {
		return p, nil
	}
	content, err := json.Marshal(state{
		Kubeconfig: o.kubeconfig, ControlURL: controlURL, Server: plane.Server(),
		APIServerPID: plane.APIServerPID, EtcdPID: plane.EtcdPID,
	})
	if err == nil {
		err = p.write(o.state, append(content, '\n'))
	}
	if err != nil {
		p.remove()
		return p, fmt.Errorf("write the state file: %w", err)
	}
	return p, nil
}

// write is atomic, and readable by the owner only.
func (p publication) write(path string, content []byte) error {
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

// remove takes back what nobody has replaced since: another devcluster may have published to the same path.
func (p publication) remove() {
	for path, content := range p.files {
		if now, err := os.ReadFile(path); err == nil && bytes.Equal(now, content) {
			_ = os.Remove(path)
		}
	}
}
