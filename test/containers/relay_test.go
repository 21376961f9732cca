package containers_test

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// relay leads from this machine's address in a network of containers to a loopback address. It returns where it listens. Those who
// are not in that network get no answer: otherwise this machine would answer at all of its addresses to all of its networks.
func relay(t *testing.T, from *bridge, to string) string {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(from.addr(1).String(), "0"))
	require.NoError(t, err)
	var running sync.WaitGroup
	ended := make(chan struct{})
	running.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer func() { _ = in.Close() }()
				if from.has(in.RemoteAddr()) {
					join(in, to, ended)
				} else {
					<-ended
				}
			})
		}
	})
	t.Cleanup(func() {
		close(ended)
		_ = listener.Close()
		running.Wait()
	})
	return listener.Addr().String()
}

// has tells whether an address is in the network.
func (b *bridge) has(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && b.prefix.Contains(tcp.AddrPort().Addr().Unmap())
}

// join connects in with an address until one side closes, or all has ended.
func join(in net.Conn, to string, ended <-chan struct{}) {
	out, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	var pipes sync.WaitGroup
	over := make(chan struct{}, 2)
	pipe := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		over <- struct{}{}
	}
	pipes.Go(func() { pipe(out, in) })
	pipes.Go(func() { pipe(in, out) })
	select {
	case <-over:
	case <-ended:
	}
	_, _ = in.Close(), out.Close()
	pipes.Wait()
}
