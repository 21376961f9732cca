// Package helm tests the chart in deploy/helm: what it renders, that a real API server accepts it, and that the programs can live
// with the rights and settings that it gives them.
package helm

import (
	"flag"
	"testing"

	"sandbox-provisioner/internal/testenv"
)

var update = flag.Bool("update", false, "rewrite the golden files, and the files that the chart has copies of")

func TestMain(m *testing.M) { testenv.Main(m) }
