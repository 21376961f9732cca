// Package helm tests the chart in deploy/helm: what it renders, that a real API server accepts it, and that the programs can live
// with the rights and settings that it gives them.
package helm

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"sandbox-provisioner/internal/testenv"
)

var update = flag.Bool("update", false, "rewrite the golden files, and the files that the chart has copies of")

// A NATS server of a cluster that is shut down while a stream comes up forgets the store of that stream.
func TestMain(m *testing.M) {
	testenv.Main(m,
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"))
}
