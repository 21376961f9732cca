package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
)

// progressFile is where a whole run keeps what it has measured, until it is over.
const progressFile = "bin/bench.json"

// progress is how far a whole run has come. One that was broken off, in an hour much can happen, goes on after the last section that it
// has finished.
type progress struct {
	Surroundings surroundings // of the first go
	Rounds       int
	Commits      []string // one a go
	Done         []string
	Values       []value
}

// loadProgress returns what a run has left in a file, if it can stand beside what is measured now: on the same machine, with as many
// rounds, of the same programs. Else it returns a beginning.
func loadProgress(file string, now surroundings, rounds int, samePrograms func(commit, other string) bool) (progress, error) {
	beginning := progress{Surroundings: now, Rounds: rounds, Commits: []string{now.Commit}}
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return beginning, nil
	}
	if err != nil {
		return beginning, err
	}
	var p progress
	if err := json.Unmarshal(content, &p); err != nil {
		return beginning, fmt.Errorf("%s: %w; remove it to begin anew", file, err)
	}
	then := p.Surroundings
	then.Load, then.Date, then.Commit = now.Load, now.Date, now.Commit
	if then != now || p.Rounds != rounds || !samePrograms(p.Surroundings.Commit, now.Commit) {
		return beginning, nil
	}
	p.Commits = append(p.Commits, now.Commit)
	return p, nil
}

// samePrograms tells whether what is measured is the same in two commits: the product and Kubernetes around it, and not this benchmark.
func samePrograms(commit, other string) bool {
	if strings.HasSuffix(commit, dirty) || strings.HasSuffix(other, dirty) {
		return false // there may be other changes by now
	}
	return exec.Command("git", "diff", "--quiet", commit, other, "--", "cmd", "internal", "go.mod", "go.sum", "hack/devcluster",
		":(exclude)*_test.go", ":(exclude)internal/testenv").Run() == nil
}

// dirty is the end of what git calls a commit with changes on top of it.
const dirty = "-dirty"

func (p progress) save(file string) error {
	content, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o644)
}
