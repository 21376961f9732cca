package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"sandbox-provisioner/internal/sandbox"
)

// Keys of log fields.
const (
	keyAddr  = "addr"
	keyError = "error"
	keyPart  = "part"
)

// A Link tells the log whether a part that we depend on answers: one line when that is first known, and one for each change. It
// is safe for concurrent use.
type Link struct {
	part string
	log  *slog.Logger

	mu        sync.Mutex
	known, up bool
}

// NewLink returns the Link to a part of that name.
func NewLink(part string, log *slog.Logger) *Link { return &Link{part: part, log: log} }

// Up says that the part has answered; attrs tell more about it.
func (l *Link) Up(attrs ...slog.Attr) {
	if l.change(true) {
		l.log.LogAttrs(context.Background(), slog.LevelInfo, "part answers", append(attrs, slog.String(keyPart, l.part))...)
	}
}

// Down says that the part has not answered.
func (l *Link) Down(err error) {
	if l.change(false) {
		l.log.Warn("part does not answer", slog.String(keyPart, l.part), slog.String(keyError, sandbox.Plain(err.Error())))
	}
}

// Note is Up or Down, by the error of a question. One that was broken off says nothing.
func (l *Link) Note(err error) {
	switch {
	case err == nil:
		l.Up()
	case !errors.Is(err, context.Canceled):
		l.Down(err)
	}
}

func (l *Link) change(up bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	changed := !l.known || l.up != up
	l.known, l.up = true, up
	return changed
}

// Once returns a function that tells of an error, in words that may be logged, unless it is the same as the one before: most come
// again with every try. It is safe for concurrent use.
func Once(tell func(text string)) func(error) {
	var last atomic.Value
	return func(err error) {
		text := sandbox.Plain(err.Error())
		if last.Swap(text) != text {
			tell(text)
		}
	}
}
