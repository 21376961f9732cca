// Package containers_test runs NATS and workers in containers, and does to them what an operator's night does: pauses them,
// kills them, pulls their network, loses their volume.
package containers_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"github.com/testcontainers/testcontainers-go"

	"sandbox-provisioner/internal/sandbox"
	"sandbox-provisioner/internal/testenv"
)

// Images, as hack/docker/images.sh names them.
const (
	natsImage   = "nats:2.15.2"
	workerImage = "sandbox-provisioner-worker:local"
)

// natsBudget is in what time a request must be refused while NATS does not answer: 2 s, and as much for a busy machine.
const natsBudget = 4 * time.Second

// ackWait is short, so that what somebody had in hand soon goes to others.
const ackWait = 3 * time.Second

func TestMain(m *testing.M) {
	for name, value := range map[string]string{
		"TESTCONTAINERS_RYUK_DISABLED": "true",      // the reaper is an image that would be pulled
		"TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1", // a build machine is easily taken for a container
	} {
		if err := os.Setenv(name, value); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	testenv.Main(m)
}

// needEngine skips the test on a machine without a Docker engine, and fails it in CI, where there has to be one. It returns
// when the images are there.
func needEngine(t *testing.T) {
	t.Helper()
	if err := engineAnswers(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("there is no Docker engine, and CI must have one; run hack/docker/engine.sh ensure: %v", err)
		}
		t.Skipf("NOT TESTED: there is no Docker engine; run hack/docker/engine.sh ensure: %v", err)
	}
	require.NoError(t, images())
}

var engineAnswers = sync.OnceValue(func() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	docker, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = docker.Close() }()
	_, err = docker.Ping(ctx, client.PingOptions{})
	return err
})

var images = sync.OnceValue(func() error {
	out, err := exec.Command("../../hack/docker/images.sh", "nats", "worker").CombinedOutput()
	if err == nil && !slices.Contains(strings.Fields(string(out)), natsImage) {
		err = fmt.Errorf("%s is not among the images; the version in go.mod has changed", natsImage)
	}
	if err != nil {
		err = fmt.Errorf("images: %w\n%s", err, out)
	}
	return err
})

// site is apis, and mostly workers, in this process, on a NATS in containers.
type site = testenv.Deployment[*testenv.Instance]

// names are n ids.
func names(prefix string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint(prefix, "-", i)
	}
	return ids
}

// created creates sandboxes and returns when all exist.
func created(t *testing.T, d *site, ids []string) {
	t.Helper()
	for _, id := range ids {
		untilCode(t, 20*time.Second, 200, func() testenv.Response { return d.Client().Create(t.Context(), id) })
	}
}

// untilCode repeats a request until it has that answer.
func untilCode(t *testing.T, within time.Duration, code int, ask func() testenv.Response) testenv.Response {
	t.Helper()
	var r testenv.Response
	testenv.Until(t, within, func() error {
		if r = ask(); r.Code != code {
			return errors.New(r.String())
		}
		return nil
	})
	return r
}

// requireExactly waits until the jobs are done, and wants one Pod and one Service of each of ids in the end, and nothing else.
func requireExactly(t *testing.T, d *site, url string, within time.Duration, ids ...string) {
	t.Helper()
	slices.Sort(ids)
	var pods, services []string
	look := func() error {
		pods, services = living(d)
		if !slices.Equal(pods, ids) || !slices.Equal(services, ids) {
			return fmt.Errorf("wanted %d sandboxes; missing Pods %v, Services %v; unwanted Pods %v, Services %v", len(ids),
				without(ids, pods), without(ids, services), without(pods, ids), without(services, ids))
		}
		return nil
	}
	testenv.Until(t, within, look)
	waitUntilQuiet(t, url, within)
	require.NoError(t, look(), "after the last job")
}

// living are the ids of the Pods and of the Services, each as often as it is there. Pods that are being deleted do not count.
func living(d *site) (pods, services []string) {
	for _, pod := range d.Pods() {
		if pod.DeletionTimestamp == nil {
			pods = append(pods, pod.Labels[sandbox.LabelID])
		}
	}
	for _, service := range d.Services() {
		services = append(services, service.Labels[sandbox.LabelID])
	}
	slices.Sort(pods)
	slices.Sort(services)
	return pods, services
}

func without(all, others []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(id string) bool { return slices.Contains(others, id) })
}

// waitUntilQuiet waits until every job has been acknowledged.
func waitUntilQuiet(t *testing.T, url string, within time.Duration) {
	t.Helper()
	testenv.Until(t, within, func() error {
		return withJetStream(url, func(js jetstream.JetStream) error {
			consumer, err := js.Consumer(t.Context(), "SANDBOX_JOBS", "default")
			if err != nil {
				return err
			}
			if info := consumer.CachedInfo(); info.NumPending > 0 || info.NumAckPending > 0 {
				return fmt.Errorf("%d jobs wait, %d are under way", info.NumPending, info.NumAckPending)
			}
			return nil
		})
	})
}

func withJetStream(url string, do func(jetstream.JetStream) error) error {
	nc, err := nats.Connect(url, nats.Timeout(time.Second))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	return do(js)
}
