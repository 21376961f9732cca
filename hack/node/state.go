package main

import (
	"encoding/json"
	"fmt"
	"os"
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
