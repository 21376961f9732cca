// Package observe_test looks at running programs as an operator does.
package observe_test

import (
	"testing"

	"sandbox-provisioner/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }
