package testenv

import (
	"bytes"
	"strings"
	"sync"
	"testing"
)

// Bounds of what is kept of a log, in bytes, and of what is shown of it, in lines.
const (
	maxLog   = 4 << 20
	tailSize = 150
)

// A logBook keeps what a program writes, and shows its end when the test fails.
type logBook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func newLogBook(t testing.TB, name string) *logBook {
	b := &logBook{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of %s:\n%s", name, tail(b.String()))
		}
	})
	return b
}

// Write implements io.Writer.
func (b *logBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.text.Len() > maxLog {
		b.text.Next(maxLog / 2)
	}
	return b.text.Write(p)
}

// String implements fmt.Stringer.
func (b *logBook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func tail(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-tailSize):], "\n")
}
