package testenv

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

// Ports from which addresses are taken. They are below those that Kubernetes gives to Services and those that the system gives
// to outgoing connections, so that one stays free until its program listens, also across restarts.
const (
	firstPort = 20000
	ports     = 9000
)

var taken sync.Map

// FreeAddr is a loopback address on which nobody listens, and which no other test of this process gets.
func FreeAddr(t testing.TB) string {
	t.Helper()
	for range 1000 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+rand.IntN(ports)))
		if _, used := taken.LoadOrStore(addr, true); used {
			continue
		}
		listener, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		_ = listener.Close()
		t.Cleanup(func() { taken.Delete(addr) })
		return addr
	}
	t.Fatal("no free port")
	return ""
}
