package observe_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sandbox-provisioner/internal/testenv"
)

// A fault is something that an operator has to be told.
type fault struct {
	name    string
	options []testenv.Option
	cause   func(s *site)
	// repair is given where it is looked at what happens afterwards.
	repair func(s *site)
	// alerts are those that fire, and no others.
	alerts []string
}

// Limits of waiting, in our own time. A repair is looked at until the windows behind which alerts stay silent after an outage are over.
const (
	untilFiring = 240 * time.Second
	untilQuiet  = 90 * time.Second
	aftermath   = 40 * time.Second
)

const everyPod = "*"

// faults are all that there is an alert for.
var faults = []fault{
	{
		name:   "workers stopped",
		cause:  func(s *site) { s.StopWorkers() },
		repair: func(s *site) { s.StartWorkers() },
		alerts: []string{"SandboxProvisionerNoWorkers"},
	},
	{
		name:   "NATS stopped",
		cause:  func(s *site) { s.NATS.Stop() },
		repair: func(s *site) { s.NATS.Start() },
		alerts: []string{"SandboxProvisionerNATSDown"},
	},
	{
		name:   "Kubernetes stopped",
		cause:  func(s *site) { s.proxy.Cut() },
		repair: func(s *site) { s.proxy.Heal() },
		alerts: []string{"SandboxProvisionerKubernetesDown"},
	},
	{
		name: "image cannot be pulled for everyone",
		cause: func(s *site) {
			s.Cluster.Misbehave(s.t, s.Namespace, everyPod, testenv.Fault{Kind: testenv.ImagePullError})
			s.queue("waiting", 5)
		},
		repair: func(s *site) { s.Cluster.Behave(s.t, s.Namespace, everyPod) },
		alerts: []string{"SandboxProvisionerImagePullFails"},
	},
	{
		name:   "quota full",
		cause:  func(s *site) { s.limitPods() },
		repair: func(s *site) { s.unlimitPods() },
		alerts: []string{"SandboxProvisionerQuotaFull"},
	},
	{
		name:   "api stopped",
		cause:  func(s *site) { s.APIs[0].Stop() },
		repair: func(s *site) { s.APIs[0].Start() },
		alerts: []string{"SandboxProvisionerNoAPI"},
	},
	{
		name: "one sandbox cannot be made because its predecessor does not go",
		cause: func(s *site) {
			s.Misbehave("stuck", testenv.Fault{Kind: testenv.HangInTermination})
			s.Client().Create(s.t.Context(), "stuck").Want(s.t, http.StatusOK)
			s.Client().Delete(s.t.Context(), "stuck").Want(s.t, http.StatusOK)
			s.Client().Create(s.t.Context(), "stuck", testenv.Prefer("respond-async")).Want(s.t, http.StatusAccepted)
		},
		alerts: []string{"SandboxProvisionerJobStuck"},
	},
	{
		name:    "one worker that is slow",
		options: []testenv.Option{testenv.ClusterIP(), testenv.Env("WORKER_CONCURRENCY", "4")},
		cause: func(s *site) {
			s.proxy.On(testenv.Match{Verb: "create", Resource: "pods"}, slowly)
			s.queue("waiting", 150)
		},
		alerts: []string{
			"SandboxProvisionerLatencyBudgetBurnsFast", "SandboxProvisionerLatencyBudgetBurnsSlowly", "SandboxProvisionerQueueNotDrained",
		},
	},
	{
		name:    "Kubernetes answers with errors",
		options: []testenv.Option{testenv.Env("CREATE_DEADLINE", "10s"), testenv.Env("RETRY_MAX", "1s")},
		cause: func(s *site) {
			s.proxy.On(testenv.Match{Verb: "create", Resource: "pods"}, testenv.Refuse(http.StatusInternalServerError, metav1.StatusReasonInternalError, "etcd is slow"))
			s.inBackground(func(s *site, n int) {
				s.Client().Create(s.t.Context(), fmt.Sprint("failing-", n), testenv.Prefer("wait=1"))
			})
		},
		alerts: []string{
			"SandboxProvisionerErrorBudgetBurnsFast", "SandboxProvisionerErrorBudgetBurnsSlowly",
			"SandboxProvisionerJobsGivenUp", "SandboxProvisionerRetryStorm",
		},
	},
	{
		name: "Kubernetes refuses",
		cause: func(s *site) {
			s.proxy.On(testenv.Match{Verb: "create", Resource: "pods"}, testenv.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "denied by policy"))
		},
		alerts: []string{
			"SandboxProvisionerCreatesRefused", "SandboxProvisionerErrorBudgetBurnsFast", "SandboxProvisionerErrorBudgetBurnsSlowly",
		},
	},
	{
		name:    "a Service was deleted from outside",
		options: []testenv.Option{testenv.Env("SWEEP_INTERVAL", "1s"), testenv.Env("ORPHAN_GRACE", "1s")},
		cause: func(s *site) {
			s.Client().Create(s.t.Context(), "half").Want(s.t, http.StatusOK)
			s.DeleteService("half")
		},
		alerts: []string{"SandboxProvisionerOrphansFound"},
	},
}

func TestEachFaultMakesItsAlertFireAndOnlyIt(t *testing.T) {
	t.Parallel()
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			bring(t, f, observe(t, nil, f.options...))
		})
	}
	t.Run("one worker does not reach Kubernetes", func(t *testing.T) {
		t.Parallel()
		proxy := testenv.Proxy(t, testenv.Cluster(t))
		bring(t, fault{
			cause:  func(*site) { proxy.Cut() },
			alerts: []string{"SandboxProvisionerKubernetesConnectionLost"},
		}, observe(t, nil, testenv.Workers(2), testenv.WorkerThrough(1, proxy)))
	})
	t.Run("one worker does not reach NATS", func(t *testing.T) {
		t.Parallel()
		beside := testenv.Processes(t, testenv.APIs(0))
		bring(t, fault{
			cause:  func(*site) { beside.NATS.Stop() },
			alerts: []string{"SandboxProvisionerNATSConnectionLost"},
		}, observe(t, beside.Targets()))
	})
}

// bring causes a fault and looks at what fires.
func bring(t *testing.T, f fault, s *site) {
	t.Helper()
	f.cause(s)
	s.waitUntilFiring(untilFiring, f.alerts...)
	lastFor(t, 5*time.Second) // others may be about to
	t.Run("fire", func(t *testing.T) { require.Equal(t, f.alerts, s.fired()) })
	for _, r := range s.rules() {
		if slices.Contains(f.alerts, r.name) {
			t.Run(r.name, func(t *testing.T) { require.NoError(t, s.gives(r.expr)) })
		}
	}
	if f.repair != nil {
		t.Run("afterwards", func(t *testing.T) {
			f.repair(s)
			s.waitUntilQuiet(untilQuiet)
			lastFor(t, aftermath)
			require.Equal(t, f.alerts, s.fired())
		})
	}
	s.requireSoundRules()
}

func TestEveryAlertHasAFaultThatMakesItFire(t *testing.T) {
	t.Parallel()
	tested := []string{"SandboxProvisionerKubernetesConnectionLost", "SandboxProvisionerNATSConnectionLost"}
	for _, f := range faults {
		tested = append(tested, f.alerts...)
	}
	for name := range alertsInFiles(t) {
		require.Contains(t, tested, name)
	}
}

// slowly answers after three seconds, which is more than the objective and less than a request may take.
func slowly(w http.ResponseWriter, r *http.Request, _ *testenv.Rule, forward http.Handler) {
	timer := time.NewTimer(3 * time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
		forward.ServeHTTP(w, r)
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	}
}

// limitPods lets a quota be full as soon as it holds.
func (s *site) limitPods() {
	s.t.Helper()
	quotas := s.Cluster.Core.ResourceQuotas(s.Namespace)
	_, err := quotas.Create(s.t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "full"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	testenv.Until(s.t, 10*time.Second, func() error {
		quota, err := quotas.Get(s.t.Context(), "full", metav1.GetOptions{})
		if err == nil && len(quota.Status.Hard) == 0 {
			err = errors.New("the quota does not hold yet")
		}
		return err
	})
}

func (s *site) unlimitPods() {
	s.t.Helper()
	require.NoError(s.t, s.Cluster.Core.ResourceQuotas(s.Namespace).Delete(s.t.Context(), "full", metav1.DeleteOptions{}))
}
