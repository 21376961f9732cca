package containers_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/stretchr/testify/require"
	"github.com/testcontainers/testcontainers-go"

	"sandbox-provisioner/internal/testenv"
)

// Of three workers one is cut off from NATS and one from Kubernetes, in the middle of their work. The third does it all, and
// those that come back do no harm.
func TestAWorkerThatIsCutOffFromOneSideLeavesTheWorkToOthers(t *testing.T) {
	t.Parallel()
	needEngine(t)
	// From the network of NATS nothing leads to Kubernetes, and the reverse.
	toNATS, toKubernetes := newBridge(t, true), newBridge(t, false)
	addr := toNATS.addr(natsHost)
	natsServer(t, toNATS, addr, newVolume(t), jetStream)
	url := natsURL(addr)
	d := testenv.Stack(t, testenv.NATSAt(url), testenv.ClusterIP(), testenv.Workers(0))
	c := d.Client()
	workers := make([]*box, 3)
	proxies := make([]*testenv.FaultProxy, 3)
	for i := range workers {
		proxies[i] = testenv.Proxy(t, d.Cluster)
		// Of the first only the lease may end what it has in hand.
		timeout := []string{"60s", "5s", "5s"}[i]
		workers[i] = worker(t, i, d, proxies[i], timeout, url, toNATS, toKubernetes)
	}
	withoutNATS, withoutKubernetes, whole := 0, 1, 2

	kept, deleted, late := names("kept", 10), names("deleted", 10), names("late", 10)
	for _, id := range slices.Concat(kept, deleted, late) {
		c.Create(t.Context(), id, testenv.Prefer("wait=25")).Want(t, http.StatusOK)
	}
	for i, p := range proxies {
		require.NotZero(t, writes(p), "worker %d has had nothing to do", i)
	}

	// All have something in hand that does not get done before the cut.
	held := make([]*testenv.Rule, len(proxies))
	for i, p := range proxies {
		held[i] = p.On(testenv.Match{Verb: "create", Resource: "pods"}, testenv.Hang)
	}
	made := names("made", 60)
	for _, id := range made {
		c.Create(t.Context(), id, testenv.Prefer("respond-async")).Want(t, http.StatusAccepted)
	}
	for _, id := range deleted {
		c.Delete(t.Context(), id, testenv.Prefer("respond-async")).Want(t, http.StatusAccepted)
	}
	for i, rule := range held {
		testenv.Until(t, 20*time.Second, func() error {
			if rule.Hits() == 0 {
				return fmt.Errorf("worker %d has nothing in hand", i)
			}
			return nil
		})
	}
	workers[withoutNATS].cutOff(toNATS)
	workers[withoutKubernetes].cutOff(toKubernetes)
	cut := time.Now()
	held[withoutKubernetes].Remove()
	held[whole].Remove()
	requireExactly(t, d, url, 40*time.Second, slices.Concat(kept, late, made)...)
	t.Logf("all was done %s after the cut", time.Since(cut).Round(100*time.Millisecond))

	// What the worker without NATS had in hand has long been done by others. It must not go on with it.
	for _, p := range proxies {
		p.ResetCounts()
	}
	held[withoutNATS].Remove() // breaks the connections on which it would still wait
	for _, id := range late {
		c.Delete(t.Context(), id, testenv.Prefer("respond-async")).Want(t, http.StatusAccepted)
	}
	more := names("more", 10)
	for _, id := range more {
		c.Create(t.Context(), id, testenv.Prefer("respond-async")).Want(t, http.StatusAccepted)
	}
	requireExactly(t, d, url, 40*time.Second, slices.Concat(kept, made, more)...)
	require.Zero(t, writes(proxies[withoutNATS]), "it wrote without hearing of NATS")
	require.Zero(t, writes(proxies[withoutKubernetes]), "it was not cut off")
	require.GreaterOrEqual(t, writes(proxies[whole]), 2*(len(late)+len(more)))

	workers[withoutNATS].connect(toNATS)
	workers[withoutKubernetes].connect(toKubernetes)
	// Both are known to be back when they work again.
	var again []string
	testenv.Until(t, 60*time.Second, func() error {
		id := fmt.Sprint("again-", len(again))
		if r := c.Create(t.Context(), id, testenv.Prefer("wait=25")); r.Code != http.StatusOK {
			return fmt.Errorf("%v", r)
		}
		again = append(again, id)
		if writes(proxies[withoutNATS]) == 0 || writes(proxies[withoutKubernetes]) == 0 {
			return fmt.Errorf("of the workers that were cut off not both work, after %d jobs", len(again))
		}
		return nil
	})
	requireExactly(t, d, url, 20*time.Second, slices.Concat(kept, made, more, again)...)
}

// A worker in a container with a limit of memory would be killed if its garbage piled up to that limit.
func TestAWorkerCollectsGarbageBeforeItsContainerIsFull(t *testing.T) {
	t.Parallel()
	needEngine(t)
	on := newBridge(t, false)
	addr := on.addr(2)
	const kubeconfig = `{"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}], "contexts": [{"name": "c", "context": {"cluster": "c"}}],
		"current-context": "c"}`
	run(t, "worker", testcontainers.ContainerRequest{
		Image:              workerImage,
		Files:              []testcontainers.ContainerFile{{Reader: strings.NewReader(kubeconfig), ContainerFilePath: "/kubeconfig", FileMode: 0o644}},
		Env:                map[string]string{"NATS_URL": "nats://127.0.0.1:1", "KUBECONFIG_PATH": "/kubeconfig"},
		HostConfigModifier: func(c *container.HostConfig) { c.Memory = 100 << 20 },
	}, map[*bridge]netip.Addr{on: addr}, on)
	const nineTenths = 90 << 20
	testenv.Until(t, 20*time.Second, func() error {
		metrics, err := testenv.ScrapeAt(t.Context(), fmt.Sprintf("http://%s:9090", addr))
		if err == nil {
			require.InDelta(t, nineTenths, metrics["go_gc_gomemlimit_bytes"].Metric[0].Gauge.GetValue(), 1)
		}
		return err
	})
}

// worker starts a worker in a container, which reaches NATS through the first network and Kubernetes through the second.
func worker(t *testing.T, i int, d *site, proxy *testenv.FaultProxy, timeout, nats string, toNATS, toKubernetes *bridge) *box {
	t.Helper()
	kubeconfig, err := os.Open(proxy.Kubeconfig)
	require.NoError(t, err)
	defer func() { _ = kubeconfig.Close() }()
	return run(t, fmt.Sprint("worker ", i), testcontainers.ContainerRequest{
		Image: workerImage,
		Files: []testcontainers.ContainerFile{{Reader: kubeconfig, ContainerFilePath: "/kubeconfig", FileMode: 0o644}},
		Env: map[string]string{
			"NATS_URL": nats, "KUBECONFIG_PATH": "/kubeconfig", "K8S_API_SERVER": "http://" + testenv.Relay(t, toKubernetes.addr(1), strings.TrimPrefix(proxy.URL, "http://"), toKubernetes.prefix),
			"K8S_NAMESPACE": d.Namespace, "SANDBOX_SERVICE_TYPE": "ClusterIP", "SANDBOX_IMAGE": "sandbox.example/image:1",
			"K8S_REQUEST_TIMEOUT": timeout, "ACK_WAIT": ackWait.String(), "SWEEP_INTERVAL": "0s", "LOG_FORMAT": "text", "LOG_LEVEL": "debug",
		},
	}, nil, toNATS, toKubernetes)
}

// writes is how often something was created or deleted through a proxy.
func writes(p *testenv.FaultProxy) int {
	n := 0
	for what, count := range p.Counts() {
		switch what {
		case "create pods", "create services", "delete pods", "delete services":
			n += count
		}
	}
	return n
}
