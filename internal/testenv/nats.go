package testenv

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/natsserver"
)

// jobStream is the stream of the intents, and clusterName the name of its consumer.
const (
	jobStream   = "SANDBOX_JOBS"
	clusterName = "default"
)

// A NATSServer is a NATS server of the test, with JetStream, on a port that it keeps.
type NATSServer struct {
	t      testing.TB
	addr   string
	dir    string
	server *natsserver.Server
}

// NATS starts a server that ends with the test.
func NATS(t testing.TB) *NATSServer {
	t.Helper()
	s := &NATSServer{t: t, addr: FreeAddr(t), dir: filepath.Join(t.TempDir(), "nats")}
	s.Start()
	t.Cleanup(s.Stop)
	return s
}

// URL is where clients connect.
func (s *NATSServer) URL() string { return "nats://" + s.addr }

// Start starts the server again, with what its store holds.
func (s *NATSServer) Start() {
	s.t.Helper()
	server, err := natsserver.Start(natsserver.Config{DataDir: s.dir, Listen: s.addr}, slog.New(slog.DiscardHandler))
	require.NoError(s.t, err)
	s.server = server
}

// Stop stops the server. The store is kept.
func (s *NATSServer) Stop() {
	if s.server != nil {
		s.server.Shutdown()
		s.server = nil
	}
}

// Empty throws away the store of a server that is stopped.
func (s *NATSServer) Empty() {
	s.t.Helper()
	require.Nil(s.t, s.server, "the server must be stopped")
	require.NoError(s.t, os.RemoveAll(s.dir))
}

// Connect returns a connection for the test's own use, which ends with the test.
func (s *NATSServer) Connect() (*nats.Conn, jetstream.JetStream) {
	s.t.Helper()
	nc, err := nats.Connect(s.URL())
	require.NoError(s.t, err)
	s.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(s.t, err)
	return nc, js
}

// WaitUntilQuiet waits until every job has been acknowledged, so that no worker has anything left to do.
func (s *NATSServer) WaitUntilQuiet(within time.Duration) {
	s.t.Helper()
	nc, err := nats.Connect(s.URL())
	require.NoError(s.t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(s.t, err)
	Until(s.t, within, func() error {
		consumer, err := js.Consumer(s.t.Context(), jobStream, clusterName)
		if err != nil {
			return fmt.Errorf("consumer of the jobs: %w", err)
		}
		info := consumer.CachedInfo()
		if info.NumPending > 0 || info.NumAckPending > 0 {
			return errors.New("jobs are left: " + fmt.Sprint(info.NumPending, " waiting, ", info.NumAckPending, " under way"))
		}
		return nil
	})
}

// Steal takes the next job away from the workers and leaves it alone, as one that dies would. It comes again after ACK_WAIT.
func (s *NATSServer) Steal() {
	s.t.Helper()
	_, js := s.Connect()
	consumer, err := js.Consumer(s.t.Context(), jobStream, clusterName)
	require.NoError(s.t, err)
	_, err = consumer.Next(jetstream.FetchMaxWait(5 * time.Second))
	require.NoError(s.t, err)
}
