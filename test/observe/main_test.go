// Package observe_test looks at what an operator sees: whether every expression of the dashboards and rules gives data on a live
// system under load, and whether each fault makes its alert fire.
package observe_test

import (
	"testing"

	"sandbox-provisioner/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }
