package helm

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"sandbox-provisioner/internal/app"
	"sandbox-provisioner/internal/testenv"
)

// The chart's parts together, but for containers: NATS with its configuration and token, api and worker with their settings and
// the rights of their ServiceAccounts.
func TestProgramsRunOnWhatTheChartGivesThem(t *testing.T) {
	d := newDeployment(t)
	sandboxes := d.sandboxes()
	r := d.install("sandbox: {namespace: " + sandboxes + "}")
	token := d.secret("-nats", "token")
	nats := startNATS(t, natsOptions(t, r, 0, token))

	address := map[string]string{}
	settings := func(component string) map[string]string {
		env := r.environment(t, component)
		require.Equal(t, "nats://"+fullname+"-nats."+d.namespace+".svc:4222", env["NATS_URL"])
		require.Equal(t, ":9090", env["METRICS_ADDR"])
		env["NATS_URL"], env["NATS_TOKEN"] = nats.ClientURL(), token
		env["KUBECONFIG_PATH"] = d.kubeconfig(component)
		env["METRICS_ADDR"] = net.JoinHostPort("127.0.0.1", strconv.Itoa(freePort(t)))
		if component == "api" {
			env["PROVISIONER_API_KEY"] = d.secret("", "PROVISIONER_API_KEY")
			env["LISTEN_ADDR"] = net.JoinHostPort("127.0.0.1", strconv.Itoa(freePort(t)))
			address["api"] = env["LISTEN_ADDR"]
		}
		address[component+" metrics"] = env["METRICS_ADDR"]
		return env
	}
	start(t, settings("api"), app.RunAPI)
	start(t, settings("worker"), app.RunWorker)
	// Where the kubelet asks.
	api, worker := r.workload(t, "api").container(), r.workload(t, "worker").container()
	answers(t, address["api"], api.StartupProbe.HTTPGet.Path)
	answers(t, address["api"], api.ReadinessProbe.HTTPGet.Path)
	answers(t, address["worker metrics"], worker.ReadinessProbe.HTTPGet.Path)
	answers(t, address["worker metrics"], worker.LivenessProbe.HTTPGet.Path)

	client := testenv.Client{URL: "http://" + address["api"], Key: d.secret("", "PROVISIONER_API_KEY")}
	created := client.Create(t.Context(), "a").Want(t, http.StatusOK)
	require.Equal(t, "http://sandbox-a-svc."+sandboxes+".svc.cluster.local:8080", *created.Body.URL)
	service, err := d.cluster.Core.Services(sandboxes).Get(t.Context(), "sandbox-a-svc", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, corev1.ServiceTypeClusterIP, service.Spec.Type)
	require.Zero(t, service.Spec.Ports[0].NodePort)
	client.Get(t.Context(), "a").Want(t, http.StatusOK)
	client.List(t.Context()).Want(t, http.StatusOK)
	client.Delete(t.Context(), "a").Want(t, http.StatusOK)
	testenv.Client{URL: client.URL, Key: "wrong"}.List(t.Context()).Want(t, http.StatusUnauthorized)
}

// kubeconfig is that of the cluster, with the identity of a program's ServiceAccount.
func (d *deployment) kubeconfig(component string) string {
	d.t.Helper()
	file, err := clientcmd.LoadFromFile(d.cluster.Kubeconfig)
	require.NoError(d.t, err)
	for _, user := range file.AuthInfos {
		user.Impersonate = d.as(component).Impersonate.UserName
	}
	path := filepath.Join(d.t.TempDir(), component)
	require.NoError(d.t, clientcmd.WriteToFile(*file, path))
	return path
}

// start runs a program in this process until the test ends.
func start[C any](t *testing.T, env map[string]string, run func(context.Context, C, *slog.Logger) error) {
	t.Helper()
	cfg := load[C](t, env)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx, cfg, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
}

func answers(t *testing.T, address, path string) {
	t.Helper()
	testenv.Until(t, 20*time.Second, func() error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
		require.NoError(t, err)
		req.Close = true
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s%s answers %s", address, path, resp.Status)
		}
		return nil
	})
}
