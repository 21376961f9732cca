package outage_test

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/testenv"
)

// The long outage of Kubernetes: what a worker does in the end, it would do for as long as it lasts.
const (
	settling = 10 * time.Second
	measured = 30 * time.Second
	tenMin   = 10 * time.Minute

	maxRate   = 2.0     // requests a second and worker
	maxGrowth = 8 << 20 // bytes
	drainTime = 4 * time.Minute
)

func TestALongOutageOfKubernetesIsWaitedForWithoutHaste(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fault   testenv.Action
		backlog int
	}{
		"that breaks connections": {testenv.Drop, 1000},
		"that never answers":      {testenv.Hang, 200}, // more than the workers can have in hand
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxies := []*testenv.FaultProxy{testenv.Proxy(t, testenv.Cluster(t)), testenv.Proxy(t, testenv.Cluster(t))}
			d := testenv.Processes(t, testenv.ClusterIP(), testenv.Workers(2),
				testenv.WorkerThrough(0, proxies[0]), testenv.WorkerThrough(1, proxies[1]), testenv.Env("LOG_LEVEL", "info"))
			var asked []*testenv.Rule
			for _, p := range proxies {
				asked = append(asked, p.On(testenv.Match{}, test.fault))
			}
			ids := names("queued", test.backlog)
			queue(t, d.Client(), ids)

			lastFor(t, settling)
			var before, memory []int
			for i, w := range d.Workers {
				before = append(before, asked[i].Hits())
				memory = append(memory, resident(t, w.PID()))
			}
			lastFor(t, measured)
			for i, w := range d.Workers {
				rate := float64(asked[i].Hits()-before[i]) / measured.Seconds()
				growth := resident(t, w.PID()) - memory[i]
				overall := float64(before[i])/tenMin.Seconds() + rate
				t.Logf("worker %d: %d requests at first, then %.2f a second: %.2f a second in ten minutes; %d KiB, and %d KiB more",
					i, before[i], rate, overall, memory[i]>>10, growth>>10)
				require.Less(t, rate, maxRate, "requests a second in the end")
				require.Less(t, overall, maxRate, "requests a second in ten minutes")
				require.Less(t, growth, maxGrowth, "growth in bytes")
			}

			for _, p := range proxies {
				p.Heal()
			}
			back := time.Now()
			requireExactly(t, d, drainTime, ids...)
			t.Logf("%d jobs were done %s after the outage", test.backlog, time.Since(back).Round(100*time.Millisecond))
			d.NATS.WaitUntilQuiet(20 * time.Second)
			requireExactly(t, d, time.Second, ids...)
		})
	}
}

// resident is how much memory a process has, in bytes.
func resident(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if os.IsNotExist(err) {
		t.Skip("there is no /proc on this system")
	}
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(status), "VmRSS:")
	require.True(t, found)
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	require.NoError(t, err)
	return kib << 10
}

// A create that cannot be carried out in time has failed, whether Kubernetes refused one half of it or did not answer at all,
// and nothing of it is left.
func TestACreateThatMissesItsDeadlineLeavesNothing(t *testing.T) {
	t.Parallel()
	const deadline = 3 * time.Second
	for name, test := range map[string]struct {
		match  testenv.Match
		action testenv.Action
		// heal: only then can it be known.
		heal bool
	}{
		"a half is refused": {
			match:  testenv.Match{Verb: "create", Resource: "services"},
			action: testenv.Refuse(http.StatusInternalServerError, "InternalError", "etcd is ill"),
		},
		"a half gets no answer, but is made": {
			match: testenv.Match{Verb: "create", Resource: "services"}, action: testenv.LoseResponse, heal: true,
		},
		"nothing gets an answer": {action: testenv.Hang, heal: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := testenv.Proxy(t, testenv.Cluster(t))
			d := testenv.Stack(t, testenv.ClusterIP(), testenv.Through(proxy), testenv.Env("CREATE_DEADLINE", deadline.String()),
				testenv.Env("K8S_REQUEST_TIMEOUT", "1s"))
			c, id := d.Client(), "late"
			rule := proxy.On(test.match, test.action)
			c.Create(t.Context(), id, testenv.Prefer("respond-async")).Want(t, http.StatusAccepted)
			accepted := time.Now()
			if test.heal {
				lastFor(t, deadline+time.Second) // an attempt that began in time may go on for a while
				rule.Remove()
			}
			testenv.Until(t, 20*time.Second, func() error {
				if r := c.Job(t.Context(), id); r.Body.State != "failed" {
					return fmt.Errorf("it has not failed: %v", r)
				}
				return nil
			})
			require.GreaterOrEqual(t, time.Since(accepted), deadline)
			r := c.Job(t.Context(), id).Want(t, http.StatusOK)
			require.Equal(t, "DeadlineExceeded", r.Body.Reason, "%v", r)
			d.WaitUntilGone(id, 10*time.Second)
			d.NATS.WaitUntilQuiet(10 * time.Second)
			requireExactly(t, d, time.Second)
			c.Get(t.Context(), id).Want(t, http.StatusNotFound)

			proxy.Heal()
			c.Create(t.Context(), id).Want(t, http.StatusOK)
			requireExactly(t, d, time.Second, id)
		})
	}
}
