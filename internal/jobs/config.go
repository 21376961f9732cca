package jobs

import (
	"errors"
	"fmt"
	"regexp"
	"time"
)

// Config says where the streams are and how long they remember.
type Config struct {
	// Cluster separates several clusters on one NATS. It is a token of every subject and the name of the consumer.
	Cluster string `env:"CLUSTER_NAME, default=default" help:"name of the cluster on a NATS that several clusters share; letters, digits, - and _"`
	// Replicas of both streams, 1 to 5; more than the NATS servers at hand is refused by NATS.
	Replicas int `env:"NATS_STREAM_REPLICAS, default=1" help:"replicas of the streams: 1, 3 or 5"`
	// Retention is how long intents and outcomes are kept. An accepted intent must be finished before it expires.
	Retention time.Duration `env:"JOB_RETENTION, default=1h" help:"how long jobs and their outcomes are remembered; at least 20m"`
	// AckWait is how long NATS waits for a sign of life before it hands a job to another worker.
	AckWait time.Duration `env:"ACK_WAIT, default=15s" help:"a job whose worker is silent for this long goes to another one; 2s or more"`
	// Deadline is how long a create is tried before it is reported as failed.
	Deadline time.Duration `env:"CREATE_DEADLINE, default=15m" help:"a create that did not succeed for this long has failed"`
	// Timeout bounds one operation on NATS.
	Timeout time.Duration `env:"NATS_TIMEOUT, default=1500ms" help:"limit of one operation on NATS"`
}

// outcomeAge is how long outcomes are kept where intents are kept for intentAge, or for the retention if that is longer: longer at every
// moment. 0 is for ever.
func (c Config) outcomeAge(intentAge time.Duration) time.Duration {
	if intentAge == 0 {
		return 0
	}
	return max(c.Retention, intentAge) + outlives
}

// clusterRegexp leaves out what has a meaning in subjects and consumer names: dots, wildcards and white space.
var clusterRegexp = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// minRetention leaves room for a create that is tried until the default Deadline, and for somebody to ask what became of it.
const minRetention = 20 * time.Minute

// Validate finds values with which a job could be lost, or NATS would refuse the streams.
func (c Config) Validate() error {
	var problems []error
	if !clusterRegexp.MatchString(c.Cluster) {
		problems = append(problems, fmt.Errorf("CLUSTER_NAME=%q: must be 1 to 64 letters, digits, - and _", c.Cluster))
	}
	if c.Replicas != 1 && c.Replicas != 3 && c.Replicas != 5 {
		problems = append(problems, fmt.Errorf("NATS_STREAM_REPLICAS=%d: must be 1, 3 or 5", c.Replicas))
	}
	if c.Deadline <= 0 {
		problems = append(problems, fmt.Errorf("CREATE_DEADLINE=%s: must be above 0s", c.Deadline))
	}
	if c.Retention < minRetention {
		problems = append(problems, fmt.Errorf("JOB_RETENTION=%s: must be 20m or more", c.Retention))
	} else if c.Retention <= c.Deadline {
		problems = append(problems, fmt.Errorf("JOB_RETENTION=%s: must be longer than CREATE_DEADLINE, which is %s; a job must be finished before it is forgotten",
			c.Retention, c.Deadline))
	}
	if c.AckWait < 2*time.Second {
		problems = append(problems, fmt.Errorf("ACK_WAIT=%s: must be 2s or more", c.AckWait))
	}
	if c.Timeout <= 0 {
		problems = append(problems, fmt.Errorf("NATS_TIMEOUT=%s: must be above 0s", c.Timeout))
	}
	return errors.Join(problems...)
}
