package main

import (
	"slices"
	"sync"
	"time"
)

// A diary keeps the last lines that were written to it.
type diary struct {
	mu    sync.Mutex
	lines []entry
}

type entry struct {
	at   time.Time
	text string
}

const diaryLines = 150

func (d *diary) write(at time.Time, text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.lines) == diaryLines {
		copy(d.lines, d.lines[1:])
		d.lines = d.lines[:diaryLines-1]
	}
	d.lines = append(d.lines, entry{at, text})
}

func (d *diary) read() []entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.lines)
}
