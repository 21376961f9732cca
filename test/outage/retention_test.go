package outage_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sandbox-provisioner/internal/app"
	"sandbox-provisioner/internal/config"
	"sandbox-provisioner/internal/jobs"
	"sandbox-provisioner/internal/sandbox"
	"sandbox-provisioner/internal/testenv"
)

// retention is much shorter than any that is valid, so that an outage can be longer.
const retention = 4 * time.Second

// What was accepted is not forgotten because Kubernetes is down for longer than jobs are remembered: a deletion is carried out, a
// create whose deadline has passed is reported as failed, and what it had made is removed.
func TestAnOutageMayLastLongerThanJobsAreRemembered(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]testenv.Action{
		"without any answer": testenv.Drop,
		"with refusals":      testenv.Refuse(500, metav1.StatusReasonInternalError, "etcd is ill"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := testenv.Cluster(t)
			proxy, namespace, nats := testenv.Proxy(t, cluster), cluster.Namespace(t), testenv.NATS(t)
			cfg, err := config.Load[config.Worker](lookup(map[string]string{
				"KUBECONFIG_PATH": proxy.Kubeconfig, "K8S_NAMESPACE": namespace, "NODE_HOST": "127.0.0.1", "SANDBOX_IMAGE": "sandbox.example/image:1", "NATS_URL": nats.URL(),
				"SANDBOX_SERVICE_TYPE": "ClusterIP", "SWEEP_INTERVAL": "0s", "ACK_WAIT": "2s", "CREATE_DEADLINE": "2s",
			}))
			require.NoError(t, err)
			cfg.Jobs.Retention, cfg.Telemetry.MetricsAddr = retention, "127.0.0.1:0"
			runWorker(t, cfg)
			nc, _ := nats.Connect()
			queue, err := jobs.New(nc, cfg.Jobs, slog.New(slog.DiscardHandler))
			require.NoError(t, err)

			ask(t, queue, "deleted", func(v jobs.View) jobs.Intent { return create(v, time.Minute) })
			awaitState(t, queue, "deleted", jobs.Succeeded)
			// The half of a create, which is its own to remove.
			services := proxy.On(testenv.Match{Verb: "create", Resource: "services"}, testenv.Drop)
			ask(t, queue, "half", func(v jobs.View) jobs.Intent { return create(v, cfg.Jobs.Deadline) })
			testenv.Until(t, 5*time.Second, func() error {
				if !exists(t, cluster, namespace, "half") {
					return errors.New("no Pod has been made")
				}
				return nil
			})
			proxy.On(testenv.Match{}, fault)
			services.Remove()
			ask(t, queue, "deleted", func(v jobs.View) jobs.Intent { return v.Delete("request", time.Now()) })
			lastFor(t, 3*retention)
			proxy.Heal()

			awaitState(t, queue, "half", jobs.Failed)
			testenv.Until(t, 20*time.Second, func() error {
				if exists(t, cluster, namespace, "deleted") || exists(t, cluster, namespace, "half") {
					return errors.New("a Pod is left")
				}
				return nil
			})
		})
	}
}

func create(v jobs.View, deadline time.Duration) jobs.Intent {
	return v.Create(sandbox.Spec{SkillsPath: "/mnt/skills", ThreadID: "t", UserID: "u"}, "request-"+v.ID, time.Now(), deadline)
}

func ask(t *testing.T, queue *jobs.Queue, id string, next func(jobs.View) jobs.Intent) {
	t.Helper()
	testenv.Until(t, 5*time.Second, func() error {
		v, err := queue.Look(t.Context(), id)
		if err == nil {
			_, err = queue.Publish(t.Context(), v, next(v))
		}
		return err
	})
}

func awaitState(t *testing.T, queue *jobs.Queue, id string, want jobs.State) {
	t.Helper()
	testenv.Until(t, 20*time.Second, func() error {
		v, err := queue.Look(t.Context(), id)
		if err == nil && (v.Outcome == nil || v.Outcome.State != want || !v.Finished()) {
			err = errors.New("the last outcome is another one")
		}
		return err
	})
}

// exists tells whether the Pod of id is there, and is to stay.
func exists(t *testing.T, cluster *testenv.Kubernetes, namespace, id string) bool {
	t.Helper()
	pod, err := cluster.Core.Pods(namespace).Get(t.Context(), sandbox.PodName(id), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false
	}
	require.NoError(t, err)
	return pod.DeletionTimestamp == nil
}

// runWorker runs a worker until the test ends.
func runWorker(t *testing.T, cfg config.Worker) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- app.RunWorker(ctx, cfg, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
}

func lookup(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, found := env[name]
		return value, found
	}
}
