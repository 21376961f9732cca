// Package config is the one place that reads the environment. The settings themselves are declared by the packages that
// use them, as struct fields with the tags
//
//	env:"NAME, default=value"  the variable, and what holds when it is not set
//	help:"…"                   its meaning, for --help
//	secret:"true"              its value is never shown; secret:"userinfo" hides only the credentials inside a URL
//
// and are put together here, one struct per program.
package config

import (
	"errors"
	"fmt"

	"sandbox-provisioner/internal/api"
	"sandbox-provisioner/internal/jobs"
	"sandbox-provisioner/internal/k8s"
	"sandbox-provisioner/internal/telemetry"
	"sandbox-provisioner/internal/worker"
)

// Common is what all programs can be told.
type Common struct {
	Jobs      jobs.Config           `group:"Jobs"`
	Cluster   k8s.Connection        `group:"Kubernetes"`
	Sandbox   k8s.Settings          `group:"Sandboxes"`
	Telemetry Telemetry             `group:"Logs and metrics"`
	Traces    telemetry.TraceConfig `group:"Traces"`
	Runtime   Runtime               `group:"Process"`
}

// API is everything that cmd/api can be told.
type API struct {
	HTTP api.Config `group:"REST API"`
	NATS NATS       `group:"NATS"`
	Common
}

// Worker is everything that cmd/worker can be told.
type Worker struct {
	Worker worker.Config `group:"Worker"`
	NATS   NATS          `group:"NATS"`
	Common
}

// Standalone is everything that cmd/standalone can be told.
type Standalone struct {
	HTTP   api.Config    `group:"REST API"`
	Worker worker.Config `group:"Worker"`
	Store  Store         `group:"Embedded NATS"`
	Common
}

// Validate checks what no group can check by itself.
func (c Common) Validate() error { return checkThrottle(c.Cluster) }

// Validate checks what no group can check by itself.
func (c Standalone) Validate() error {
	return errors.Join(c.Common.Validate(), checkSingleServer(c.Jobs))
}

// Log is how the program logs.
func (c Common) Log() Telemetry { return c.Telemetry }

// ApplyRuntime makes the process use as much of the machine as it is said.
func (c Common) ApplyRuntime() { c.Runtime.Apply() }

// ProbeAddr is where the program answers /livez and /readyz.
func (c API) ProbeAddr() string { return c.HTTP.Addr }

// ProbeAddr is where the program answers /livez and /readyz.
func (c Worker) ProbeAddr() string { return c.Telemetry.MetricsAddr }

// ProbeAddr is where the program answers /livez and /readyz.
func (c Standalone) ProbeAddr() string { return c.HTTP.Addr }

// Load reads the settings of the program whose settings C is, with lookup in place of os.LookupEnv. A variable that is set
// but empty is the empty string and not its default; where an empty string makes no sense it is refused. Nothing in a
// value is expanded. The error has one line per wrong variable, and secrets are masked in it.
func Load[C any](lookup func(name string) (value string, found bool)) (C, error) {
	var cfg C
	all, err := settings(&cfg)
	if err != nil {
		return cfg, err
	}
	var problems []error
	for _, s := range all {
		problems = append(problems, s.load(lookup))
	}
	problems = append(problems, validate(&cfg))
	return cfg, errors.Join(problems...)
}

// checkSingleServer refuses copies on servers that the standalone program does not have. Of what is wrong anyway, 2 for
// instance, the jobs themselves complain.
func checkSingleServer(c jobs.Config) error {
	if c.Replicas == 3 || c.Replicas == 5 {
		return fmt.Errorf("NATS_STREAM_REPLICAS=%d: must be 1; the embedded NATS is a single server", c.Replicas)
	}
	return nil
}
