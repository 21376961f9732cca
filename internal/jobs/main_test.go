package jobs

import (
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"sandbox-provisioner/internal/natsserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soon is how long a test waits for what must happen.
const soon = 10 * time.Second

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func testConfig() Config {
	return Config{
		Cluster: "test", Replicas: 1, Retention: time.Hour, AckWait: 15 * time.Second, Deadline: 15 * time.Minute,
		Timeout: 1500 * time.Millisecond,
	}
}

// A broker is a NATS server behind an address that stays the same when the server is restarted or replaced.
type broker struct {
	t      *testing.T
	dir    string
	server *natsserver.Server
	*link
}

func newBroker(t *testing.T) *broker {
	t.Helper()
	b := &broker{t: t, dir: t.TempDir(), link: newLink(t)}
	b.start()
	t.Cleanup(func() { b.server.Shutdown() })
	return b
}

func (b *broker) start() {
	b.t.Helper()
	s, err := natsserver.Start(natsserver.Config{DataDir: b.dir, Listen: "127.0.0.1:0"}, quiet())
	require.NoError(b.t, err)
	b.server = s
	b.lead(strings.TrimPrefix(s.ClientURL(), "nats://"))
}

func (b *broker) stop() {
	b.lead("")
	b.server.Shutdown()
}

// replace puts a server with an empty store in place of the one that runs.
func (b *broker) replace() {
	b.t.Helper()
	b.stop()
	b.dir = b.t.TempDir()
	b.start()
}

func (b *broker) connect() *nats.Conn {
	b.t.Helper()
	nc, err := nats.Connect("nats://"+b.ln.Addr().String(), ConnectOptions("test", quiet())...)
	require.NoError(b.t, err)
	b.t.Cleanup(nc.Close)
	return nc
}

// queue is a Queue with a connection of its own, as every process has.
func (b *broker) queue(change ...func(*Config)) *Queue {
	b.t.Helper()
	cfg := testConfig()
	for _, c := range change {
		c(&cfg)
	}
	q, err := New(b.connect(), cfg, quiet())
	require.NoError(b.t, err)
	return q
}

func (b *broker) jetstream() jetstream.JetStream {
	b.t.Helper()
	js, err := jetstream.New(b.connect())
	require.NoError(b.t, err)
	return js
}

// awaitConnection returns when q has had an answer. That the client believes itself connected says little: it may not have
// noticed the cut yet.
func awaitConnection(t *testing.T, q *Queue) {
	t.Helper()
	require.Eventually(t, func() bool { return q.Ping(t.Context()) == nil }, soon, 10*time.Millisecond,
		"the connection must come back by itself")
}

// A link is a wire between clients and a server that can be cut, and on which the answers can be lost.
type link struct {
	ln net.Listener

	mu     sync.Mutex
	target string
	silent bool
	conns  map[net.Conn]struct{}
	closed bool

	running sync.WaitGroup
}

func newLink(t *testing.T) *link {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &link{ln: ln, conns: map[net.Conn]struct{}{}}
	l.running.Go(l.accept)
	t.Cleanup(l.close)
	return l
}

// lead cuts what is there and leads new connections to target; "" refuses them.
func (l *link) lead(target string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target, l.silent = target, false
	l.cutLocked()
}

// silence makes requests arrive and answers vanish, until the link is restored.
func (l *link) silence() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent = true
}

// restore makes clients connect again, to a link without faults.
func (l *link) restore() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent = false
	l.cutLocked()
}

func (l *link) cutLocked() {
	for c := range l.conns {
		_ = c.Close()
	}
}

func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	_ = l.ln.Close()
	l.cutLocked()
	l.mu.Unlock()
	l.running.Wait()
}

func (l *link) accept() {
	for {
		client, err := l.ln.Accept()
		if err != nil {
			return
		}
		l.mu.Lock()
		target := l.target
		l.mu.Unlock()
		server, err := net.Dial("tcp", target)
		if target == "" || err != nil {
			_ = client.Close()
			continue
		}
		l.running.Go(func() { l.copy(server, client, func() bool { return false }) })
		l.running.Go(func() { l.copy(client, server, l.isSilent) })
	}
}

func (l *link) isSilent() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.silent
}

// copy carries bytes from one end to the other until either is closed.
func (l *link) copy(to, from net.Conn, lose func() bool) {
	defer func() { _, _ = to.Close(), from.Close() }()
	l.mu.Lock()
	l.conns[from] = struct{}{}
	if l.closed {
		_ = from.Close()
	}
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.conns, from)
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !lose() {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
