package telemetrytest

import (
	"bytes"
	"strings"
	"sync"
)

// A Log keeps what is written to it, and may be read meanwhile.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String implements fmt.Stringer.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Count is how often text occurs.
func (l *Log) Count(text string) int { return strings.Count(l.String(), text) }
