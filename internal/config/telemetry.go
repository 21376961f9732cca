package config

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
)

// Telemetry says what the program tells about itself.
type Telemetry struct {
	Level  LogLevel  `env:"LOG_LEVEL, default=info" help:"debug, info, warn or error"`
	Format LogFormat `env:"LOG_FORMAT, default=json" help:"json or text"`
	// MetricsAddr is not the address of the API: metrics are for the operator and need no key.
	MetricsAddr string `env:"METRICS_ADDR, default=:9090" help:"address of the metrics and probes; empty serves none, and nothing is counted for them"`
	// PprofAddr is empty because a profile costs time and shows command lines.
	PprofAddr string `env:"PPROF_ADDR" help:"address of Go's profiles, below /debug/pprof/; without a host, on 127.0.0.1 only; empty serves none"`
}

// Validate refuses addresses on which nothing can listen.
func (c Telemetry) Validate() error {
	var problems []error
	const allowed = "must be host:port or :port, with a port of 1 to 65535, or empty"
	if c.MetricsAddr != "" && !validAddr(c.MetricsAddr) {
		problems = append(problems, fmt.Errorf("METRICS_ADDR=%q: %s", c.MetricsAddr, allowed))
	}
	if c.PprofAddr != "" && !validAddr(c.PprofAddr) {
		problems = append(problems, fmt.Errorf("PPROF_ADDR=%q: %s", c.PprofAddr, allowed))
	}
	return errors.Join(problems...)
}

// Logger is a logger that writes to w as configured.
func (c Telemetry) Logger(w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: slog.Level(c.Level)}
	if c.Format == LogText {
		return slog.New(slog.NewTextHandler(w, opts))
	}
	return slog.New(slog.NewJSONHandler(w, opts))
}

// LogLevel is a slog.Level of which only the four with a name can be chosen.
type LogLevel slog.Level

// UnmarshalText reads a level, in upper or lower case.
func (l *LogLevel) UnmarshalText(text []byte) error {
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if strings.EqualFold(level.String(), string(text)) {
			*l = LogLevel(level)
			return nil
		}
	}
	return errors.New("must be debug, info, warn or error")
}

// MarshalText is the inverse of UnmarshalText.
func (l LogLevel) MarshalText() ([]byte, error) {
	return []byte(strings.ToLower(slog.Level(l).String())), nil
}

// A LogFormat is a shape of log lines.
type LogFormat string

// The two LogFormats.
const (
	LogJSON LogFormat = "json"
	LogText LogFormat = "text"
)

// UnmarshalText reads a format, in upper or lower case.
func (f *LogFormat) UnmarshalText(text []byte) error {
	switch format := LogFormat(strings.ToLower(string(text))); format {
	case LogJSON, LogText:
		*f = format
		return nil
	}
	return errors.New("must be json or text")
}

// validAddr tells whether a server can be told to listen on addr. Port 0 would be a port that nobody knows.
func validAddr(addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	return err == nil && validPort(port)
}

func validPort(port string) bool {
	number, err := strconv.ParseUint(port, 10, 16)
	return err == nil && number > 0
}
