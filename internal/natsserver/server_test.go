package natsserver

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAMessageSurvivesARestart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "on", "demand")

	first := run(t, Config{DataDir: dir, SyncAlways: true})
	js := stream(t, first)
	_, err := js.Publish(t.Context(), "kept", []byte("still here"))
	require.NoError(t, err)
	first.Shutdown()

	second := run(t, Config{DataDir: dir, SyncAlways: true})
	kept, err := stream(t, second).Stream(t.Context(), "KEPT")
	require.NoError(t, err)
	msg, err := kept.GetLastMsgForSubject(t.Context(), "kept")
	require.NoError(t, err)
	require.Equal(t, "still here", string(msg.Data))
}

func TestASecondServerOnOneDirectoryIsRefusedUntilTheFirstIsGone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()

	first := run(t, Config{DataDir: dir})
	_, err := Start(Config{DataDir: dir}, quiet())
	require.ErrorIs(t, err, ErrInUse)
	require.ErrorContains(t, err, dir)

	first.Shutdown()
	run(t, Config{DataDir: dir})
}

func TestAFailedStartNamesTheReasonAndFreesTheDirectory(t *testing.T) {
	t.Parallel()
	taken := run(t, Config{DataDir: t.TempDir(), Listen: "127.0.0.1:0"})

	for name, test := range map[string]struct {
		cfg     Config
		prepare func(t *testing.T, dir string)
		is      error
		text    string
	}{
		"the port is taken": {
			cfg:  Config{Listen: taken.nats.Addr().String()},
			is:   syscall.EADDRINUSE,
			text: taken.nats.Addr().String(),
		},
		"the address is no host and port": {
			cfg:  Config{Listen: "4222"},
			text: "listen address of the embedded NATS: address 4222: missing port",
		},
		"the port is out of range": {
			cfg:  Config{Listen: "127.0.0.1:65536"},
			text: `port "65536" is not a number up to 65535`,
		},
		"the directory for streams is a file": {
			prepare: func(t *testing.T, dir string) {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "jetstream"), nil, 0o600))
			},
			text: "storage directory is not a directory",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := test.cfg
			cfg.DataDir = t.TempDir()
			if test.prepare != nil {
				test.prepare(t, cfg.DataDir)
			}
			_, err := Start(cfg, quiet())
			require.ErrorContains(t, err, test.text)
			if test.is != nil {
				require.ErrorIs(t, err, test.is)
			}

			lock, err := lockDir(cfg.DataDir)
			require.NoError(t, err, "the directory must be free again")
			require.NoError(t, lock.Close())
		})
	}
}

func TestADirectoryThatCannotBeUsedIsRefused(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	blocked := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(blocked, "lock"), 0o700))

	for name, test := range map[string]struct{ dir, text string }{
		"it is empty":             {"", "the data directory of the embedded NATS is empty"},
		"it is a file":            {file, "make the data directory: mkdir " + file + ": not a directory"},
		"it is below a file":      {filepath.Join(file, "below"), "make the data directory: mkdir " + file + ": not a directory"},
		"it cannot be written to": {blocked, "write to the data directory: open " + blocked + "/lock: is a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Start(Config{DataDir: test.dir}, quiet())
			require.EqualError(t, err, test.text)
		})
	}
}

func TestOutsideClientsReachAServerThatListens(t *testing.T) {
	t.Parallel()
	s := run(t, Config{DataDir: t.TempDir(), Listen: "127.0.0.1:0"})

	nc, err := nats.Connect(s.ClientURL())
	require.NoError(t, err)
	defer nc.Close()
	require.NoError(t, nc.Flush())
}

func TestAServerThatDoesNotListenHasNoURL(t *testing.T) {
	t.Parallel()
	s := run(t, Config{DataDir: t.TempDir()})
	require.Empty(t, s.ClientURL())
	require.Nil(t, s.nats.Addr())
}

func TestConnectAfterShutdownFails(t *testing.T) {
	t.Parallel()
	s := run(t, Config{DataDir: t.TempDir()})
	s.Shutdown()
	s.Shutdown()
	_, err := s.Connect()
	require.ErrorContains(t, err, "connect to the embedded NATS")
}

// NATS forgets these options in some of the ways in which JetStream can be switched on.
func TestSyncAndStoreSettingsReachJetStream(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"every message":                  {SyncAlways: true},
		"every ten seconds":              {SyncInterval: 10 * time.Second},
		"every message in a small store": {SyncAlways: true, MaxStore: 1 << 26},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg.DataDir = t.TempDir()
			got := run(t, cfg).nats.JetStreamConfig()
			require.Equal(t, cfg.SyncAlways, got.SyncAlways)
			if cfg.SyncInterval != 0 {
				require.Equal(t, cfg.SyncInterval, got.SyncInterval)
			}
			if cfg.MaxStore != 0 {
				require.Equal(t, cfg.MaxStore, got.MaxStore)
			}
		})
	}
}

func TestTheServerLogsThroughSlogWithoutABanner(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		level slog.Level
		check func(t *testing.T, out string)
	}{
		"at info a good start is silent": {slog.LevelInfo, func(t *testing.T, out string) { require.Empty(t, out) }},
		"at debug there are notices but no drawing": {slog.LevelDebug, func(t *testing.T, out string) {
			require.Contains(t, out, "Server is ready")
			require.NotContains(t, out, "docs.nats.io")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			s, err := Start(Config{DataDir: t.TempDir()}, slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: test.level})))
			require.NoError(t, err)
			s.Shutdown()
			test.check(t, out.String())
		})
	}
}

func TestAFatalLineOfARunningServerIsLogged(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := &logger{log: slog.New(slog.NewTextHandler(&out, nil))}
	require.NoError(t, l.started())
	l.Fatalf("disk %s", "gone")
	require.Contains(t, out.String(), "disk gone")
}

func run(t *testing.T, cfg Config) *Server {
	t.Helper()
	s, err := Start(cfg, quiet())
	require.NoError(t, err)
	t.Cleanup(s.Shutdown)
	return s
}

// stream connects to s and makes a stream in it, or finds the one that is there.
func stream(t *testing.T, s *Server) jetstream.JetStream {
	t.Helper()
	nc, err := s.Connect()
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err = js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: "KEPT", Subjects: []string{"kept"}})
	require.NoError(t, err)
	return js
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
