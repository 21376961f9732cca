// Package natsserver runs a NATS server with JetStream inside this process: for the standalone program, which must not
// need a second container, and for tests, which must not need a stub.
package natsserver

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// readyWait is generous: streams are recovered before it begins to count.
const readyWait = 10 * time.Second

// Config of the embedded server.
type Config struct {
	// DataDir holds the streams. It is created when missing and locked against a second server.
	DataDir string
	// SyncAlways syncs every message to the disk before it is acknowledged, so that a promise survives a power cut.
	SyncAlways bool
	// SyncInterval is the time between two syncs when SyncAlways is off. Zero: NATS' own 2 minutes.
	SyncInterval time.Duration
	// Listen is the host:port for clients outside the process; port 0 takes a free one. Empty, the default, opens no
	// port. There is no authentication, so nothing but a loopback address makes sense.
	Listen string
	// MaxStore limits the bytes on disk. Zero: three quarters of what is free.
	MaxStore int64
}

// A Server is a running NATS server.
type Server struct {
	nats      *server.Server
	listening bool
	lock      *os.File
	shutdown  sync.Once
}

// Start runs a server and returns when it takes connections. The error is ErrInUse when another server, of whatever
// process, has the data directory; else it names the directory or the address that cannot be used.
func Start(cfg Config, log *slog.Logger) (*Server, error) {
	opts, err := options(cfg)
	if err != nil {
		return nil, err
	}
	lock, err := lockDir(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	s, err := start(opts, &logger{log: log})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start NATS on %s: %w", cfg.DataDir, err), lock.Close())
	}
	return &Server{nats: s, listening: !opts.DontListen, lock: lock}, nil
}

// Connect opens a connection that stays inside the process. It works whether or not the server listens.
func (s *Server) Connect(opts ...nats.Option) (*nats.Conn, error) {
	nc, err := nats.Connect("", append(opts[:len(opts):len(opts)], nats.InProcessServer(s.nats))...)
	if err != nil {
		return nil, fmt.Errorf("connect to the embedded NATS: %w", err)
	}
	return nc, nil
}

// ClientURL is the URL for clients outside the process, or "" when the server does not listen.
func (s *Server) ClientURL() string {
	if !s.listening {
		return ""
	}
	return s.nats.ClientURL()
}

// Shutdown closes all connections, writes out the streams, waits for the end, and frees the data directory. Calling it
// again is harmless.
func (s *Server) Shutdown() {
	s.shutdown.Do(func() {
		s.nats.Shutdown()
		s.nats.WaitForShutdown()
		// Closing is unlocking. There is nobody to tell if it fails, and the end of the process does the same.
		_ = s.lock.Close()
	})
}

func options(cfg Config) (*server.Options, error) {
	if cfg.DataDir == "" {
		// NATS would take a directory under /tmp, and lose promises at the next reboot.
		return nil, errors.New("the data directory of the embedded NATS is empty")
	}
	opts := &server.Options{
		ServerName:             "sandbox-provisioner",
		JetStream:              true,
		StoreDir:               cfg.DataDir,
		SyncAlways:             cfg.SyncAlways,
		SyncInterval:           cfg.SyncInterval,
		JetStreamMaxStore:      cfg.MaxStore,
		DisableJetStreamBanner: true,
		// Signals belong to the program. NATS would exit the process at the first SIGINT, in the middle of a drain.
		NoSigs:     true,
		NoLog:      true,
		DontListen: cfg.Listen == "",
		Port:       server.RANDOM_PORT,
	}
	if opts.DontListen {
		return opts, nil
	}
	host, port, err := net.SplitHostPort(cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen address of the embedded NATS: %w", err)
	}
	opts.Host = host
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("listen address of the embedded NATS: port %q is not a number up to 65535", port)
	}
	if number != 0 {
		opts.Port = int(number)
	}
	return opts, nil
}

// start runs the server. NATS reports a failed start only to its logger, as a fatal line, and expects that logger to end
// the process; ours keeps it.
func start(opts *server.Options, log *logger) (*server.Server, error) {
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, err
	}
	s.SetLoggerV2(log, false, false, false)
	s.Start()
	err = log.started()
	if err == nil && !s.ReadyForConnections(readyWait) {
		err = fmt.Errorf("not ready for connections within %s", readyWait)
	}
	if err != nil {
		s.Shutdown()
		s.WaitForShutdown()
		return nil, err
	}
	return s, nil
}
