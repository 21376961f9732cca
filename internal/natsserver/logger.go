package natsserver

import (
	"fmt"
	"log/slog"
	"sync"
)

const (
	message = "nats-server reports"
	keyText = "text"
)

// logger hands the lines of nats-server to slog. Its notices become debug lines: they are many, and of interest only to
// somebody who looks for a fault in NATS itself.
type logger struct {
	log *slog.Logger

	mu      sync.Mutex
	running bool
	fatal   error
}

// Noticef implements server.Logger.
func (l *logger) Noticef(format string, args ...any) { l.log.Debug(message, text(format, args)) }

// Warnf implements server.Logger.
func (l *logger) Warnf(format string, args ...any) { l.log.Warn(message, text(format, args)) }

// Errorf implements server.Logger.
func (l *logger) Errorf(format string, args ...any) { l.log.Error(message, text(format, args)) }

// Debugf implements server.Logger.
func (l *logger) Debugf(format string, args ...any) { l.log.Debug(message, text(format, args)) }

// Tracef implements server.Logger.
func (l *logger) Tracef(format string, args ...any) { l.log.Debug(message, text(format, args)) }

// Fatalf implements server.Logger. While the server starts the line is the reason why it does not; its error argument
// is kept, so that callers can match it.
func (l *logger) Fatalf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running {
		l.log.Error(message, text(format, args))
		return
	}
	if l.fatal != nil {
		return
	}
	for _, arg := range args {
		if err, ok := arg.(error); ok {
			l.fatal = err
			return
		}
	}
	l.fatal = fmt.Errorf(format, args...)
}

// started ends the start and returns what was fatal to it.
func (l *logger) started() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = true
	return l.fatal
}

func text(format string, args []any) slog.Attr {
	return slog.String(keyText, fmt.Sprintf(format, args...))
}
