// Package testenv gives tests the real surroundings: a Kubernetes API server with a simulated node, NATS, and the programs
// of this module, in this process or in their own. In front of the API server it can put a proxy with faults, for what a real
// one cannot be made to do. Whatever a test starts ends with it.
package testenv

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Main runs the tests of a package and ends what they share. It is the TestMain of every package that uses testenv. No goroutine may be
// left but those that are said to be.
func Main(m *testing.M, left ...goleak.Option) {
	flag.Parse()
	if p := flag.Lookup("test.parallel"); p != nil && p.Value.String() == p.DefValue {
		_ = p.Value.Set(strconv.Itoa(parallel))
	}
	left = append(left, goleak.IgnoreCurrent())
	code := m.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "testenv:", err)
		code = max(code, 1)
	}
	if code == 0 {
		if err := goleak.Find(left...); err != nil {
			fmt.Fprintln(os.Stderr, "testenv: goroutines are left:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// parallel is how many tests run at once, unless the command line says otherwise. It is more than there are cores: tests on a
// cluster wait most of the time.
const parallel = 8

// pollInterval is how often a condition is looked at.
const pollInterval = 20 * time.Millisecond

// Until waits until condition returns nil, and fails the test with its last error when that takes longer than within.
func Until(t testing.TB, within time.Duration, condition func() error) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			t.Fatalf("not within %s: %v", within, err)
		case <-tick.C:
		}
	}
}
