package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// state is what --state writes.
type state struct {
	Kubeconfig string `json:"kubeconfig"`
	Server     string `json:"server"`
	// Address is the node's, as this machine reaches it.
	Address string `json:"address"`
	// Containerd is the socket of the node's containerd.
	Containerd string `json:"containerd"`
	// Dir holds the node's files, the programs' logs in Dir/log among them. Root holds what is the node's own of the file system:
	// its /var/lib is Root/var/lib.
	Dir  string `json:"dir"`
	Root string `json:"root"`
	PID  int    `json:"pid"`
}

func readState(file string) (s state, err error) {
	content, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(content, &s)
	}
	if err != nil {
		return s, fmt.Errorf("read the state file: %w", err)
	}
	return s, nil
}

// publication is the files that tell others how to reach the node.
type publication struct{ files map[string][]byte }

func publish(o startOptions, kubeconfig []byte, s state) (publication, error) {
	p := publication{files: map[string][]byte{}}
	if err := p.write(o.kubeconfig, kubeconfig); err != nil {
		return p, fmt.Errorf("write the kubeconfig: %w", err)
	}
	if o.state == "" {
		return p, nil
	}
	content, err := json.Marshal(s)
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

// remove takes back what nobody has replaced since.
func (p publication) remove() {
	for path, content := range p.files {
		if now, err := os.ReadFile(path); err == nil && bytes.Equal(now, content) {
			_ = os.Remove(path)
		}
	}
}
