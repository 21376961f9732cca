package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// progressFile is where a whole run keeps what it has measured, until it is over.
const progressFile = "bin/bench.json"

// progress is how far a whole run has come. One that was broken off, in an hour much can happen, goes on after the last section that it
// has finished.
type progress struct {
	Surroundings surroundings
	Rounds       int
	Goes         int // in how many it was taken so far
	Done         []string
	Values       []value
}

// fitting tells whether what was measured then can stand beside what is measured now.
func (p progress) fitting(now surroundings, rounds int) bool {
	then := p.Surroundings
	then.Load, then.Date = now.Load, now.Date
	return p.Rounds == rounds && then == now && !strings.HasSuffix(now.Commit, "-dirty")
}

// loadProgress returns what a run has left in a file, if it fits; else a beginning.
func loadProgress(file string, now surroundings, rounds int) (progress, error) {
	beginning := progress{Surroundings: now, Rounds: rounds}
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
	if !p.fitting(now, rounds) {
		return beginning, nil
	}
	return p, nil
}

func (p progress) save(file string) error {
	content, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o644)
}
