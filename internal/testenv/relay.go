package testenv

import (
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Relay leads from an address of this machine in a network of containers to a loopback address, and returns where it listens. Those who
// are not among from get no answer: otherwise this machine would answer at all of its addresses to all of its networks.
func Relay(t testing.TB, at netip.Addr, to string, from ...netip.Prefix) string {
	t.Helper()
	listener, err := net.Listen("tcp", netip.AddrPortFrom(at, 0).String())
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
				if among(in.RemoteAddr(), from) {
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

func among(addr net.Addr, prefixes []netip.Prefix) bool {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return false
	}
	for _, p := range prefixes {
		if p.Contains(tcp.AddrPort().Addr().Unmap()) {
			return true
		}
	}
	return false
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
