package helm

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"sandbox-provisioner/internal/config"
	"sandbox-provisioner/internal/k8s"
)

// environment is what the container of a program would see; secrets and addresses are made up.
func (r rendering) environment(t testing.TB, component string) map[string]string {
	t.Helper()
	env := map[string]string{}
	container := r.workload(t, component).container()
	for _, from := range container.EnvFrom {
		require.Equal(t, fullname, from.ConfigMapRef.Name)
		for name, value := range get[corev1.ConfigMap](t, r, "ConfigMap", "").Data {
			env[name] = value
		}
	}
	for _, e := range container.Env {
		switch {
		case e.ValueFrom == nil:
			env[e.Name] = e.Value
		case e.ValueFrom.SecretKeyRef != nil:
			env[e.Name] = "secret-of-" + e.ValueFrom.SecretKeyRef.Name
		default:
			require.Equal(t, "status.hostIP", e.ValueFrom.FieldRef.FieldPath)
			env[e.Name] = "192.0.2.7"
		}
	}
	return env
}

func load[C any](t testing.TB, env map[string]string) C {
	t.Helper()
	cfg, err := config.Load[C](func(name string) (string, bool) {
		value, found := env[name]
		return value, found
	})
	require.NoError(t, err)
	return cfg
}

func TestProgramsAcceptTheirSettings(t *testing.T) {
	t.Parallel()
	eachScenario(t, func(t *testing.T, _ string, r rendering) {
		load[config.API](t, r.environment(t, "api"))
		load[config.Worker](t, r.environment(t, "worker"))
	})
}

// A variable that no program knows would be ignored without a word.
func TestEverySettingIsKnown(t *testing.T) {
	t.Parallel()
	var help bytes.Buffer
	require.NoError(t, config.Help[config.API](&help))
	require.NoError(t, config.Help[config.Worker](&help))
	proxies := map[string]bool{"HTTPS_PROXY": true, "NO_PROXY": true}
	eachScenario(t, func(t *testing.T, _ string, r rendering) {
		for _, component := range []string{"api", "worker"} {
			for name := range r.environment(t, component) {
				if !proxies[name] {
					require.Contains(t, help.String(), name)
				}
			}
		}
	})
}

func TestValuesReachThePrograms(t *testing.T) {
	t.Parallel()
	r := render(t, scenarios["everything"])
	api := load[config.API](t, r.environment(t, "api"))
	worker := load[config.Worker](t, r.environment(t, "worker"))

	want := k8s.Settings{
		Namespace: "sandboxes", Image: "registry.example.com/sandbox:3", Port: 9000,
		ServiceType: k8s.NodePort, NodeHost: "2001:db8::7", ClusterDomain: "example.local",
		BaseDir: "/srv/deer-flow", ThreadsPath: "/srv/deer-flow/threads",
		SkillsPVC: "skills", SkillsSubPathTemplate: "users/{user_id}", UserDataPVC: "user-data",
		LarkInitImage: "registry.example.com/lark-init:1", LarkBrokerImage: "registry.example.com/lark-broker:1",
		LarkDenySubcommands: "auth", AutomountServiceAccountToken: true, EnableServiceLinks: true,
		SeccompProfile: "Unconfined", TerminationGracePeriod: 12 * time.Second,
	}
	require.Equal(t, want, api.Sandbox)
	require.Equal(t, want, worker.Sandbox)
	require.Equal(t, "secret-of-"+fullname, api.HTTP.Key)
	require.Equal(t, 3*time.Second, api.HTTP.ShutdownDelay)
	require.Equal(t, 20*time.Second, api.HTTP.ShutdownWait)
	require.Equal(t, 12*time.Second, api.HTTP.CreateWait)
	require.Equal(t, 32, worker.Worker.Concurrency)
	require.Equal(t, 6*time.Second, worker.Worker.DrainWait)
	require.Equal(t, time.Minute, worker.Worker.SweepInterval)
	require.Equal(t, api.Jobs, worker.Jobs)
	require.Equal(t, "east", api.Jobs.Cluster)
	require.Equal(t, 3, api.Jobs.Replicas)
	require.Equal(t, 2*time.Hour, api.Jobs.Retention)
	require.Equal(t, "secret-of-"+fullname+"-nats", worker.NATS.Token)
	require.Equal(t, config.LogLevel(slog.LevelDebug), api.Telemetry.Level)
}

// What the chart leaves alone is what the programs' documentation says, so that there is one default to know.
func TestDefaultsAreThoseOfThePrograms(t *testing.T) {
	t.Parallel()
	got := load[config.Worker](t, render(t, "").environment(t, "worker"))
	want := load[config.Worker](t, nil)
	want.Sandbox.ServiceType = k8s.ClusterIP // on purpose
	require.Equal(t, want.Sandbox, got.Sandbox)
	require.Equal(t, want.Jobs, got.Jobs)
	require.Equal(t, want.Worker, got.Worker)
	require.Equal(t, want.Telemetry, got.Telemetry)
	require.Empty(t, got.Cluster.KubeconfigPath)
}

func TestNATSIsFoundAndItsCopiesFollow(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, values, url string
		copies            int
		want              func(t *testing.T, cfg config.NATS)
	}{
		{
			name: "one server", values: "", url: "nats://dev-sandbox-provisioner-nats.agents.svc:4222", copies: 1,
			want: func(t *testing.T, cfg config.NATS) {
				t.Helper()
				require.Equal(t, "secret-of-dev-sandbox-provisioner-nats", cfg.Token)
			},
		},
		{
			name: "three servers", values: "nats: {replicas: 3}", url: "nats://dev-sandbox-provisioner-nats.agents.svc:4222", copies: 3,
		},
		{
			name: "no token", values: "nats: {auth: {enabled: false}}", url: "nats://dev-sandbox-provisioner-nats.agents.svc:4222", copies: 1,
			want: func(t *testing.T, cfg config.NATS) {
				t.Helper()
				require.Empty(t, cfg.Token)
			},
		},
		{
			name: "external, open", values: "nats: {external: {url: 'nats://n:4222'}}", url: "nats://n:4222", copies: 1,
			want: func(t *testing.T, cfg config.NATS) {
				t.Helper()
				require.Equal(t, config.NATS{URL: "nats://n:4222"}, cfg)
			},
		},
		{
			name:   "external, five copies, token",
			values: "nats: {replicas: 3, external: {url: 'tls://n:4222', streamReplicas: 5, auth: token, existingSecret: s}}",
			url:    "tls://n:4222", copies: 5,
			want: func(t *testing.T, cfg config.NATS) {
				t.Helper()
				require.Equal(t, "secret-of-s", cfg.Token)
			},
		},
		{
			name:   "external, password",
			values: "nats: {external: {url: 'nats://n:4222', auth: password, existingSecret: s}}", url: "nats://n:4222", copies: 1,
			want: func(t *testing.T, cfg config.NATS) {
				t.Helper()
				require.Equal(t, "secret-of-s", cfg.User)
				require.Equal(t, "secret-of-s", cfg.Password)
			},
		},
		{
			name:   "external, file",
			values: "nats: {external: {url: 'nats://n:4222', auth: creds, existingSecret: s}}", url: "nats://n:4222", copies: 1,
			want: func(t *testing.T, cfg config.NATS) {
				t.Helper()
				require.Equal(t, "/etc/nats/nats.creds", cfg.Creds)
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := render(t, test.values)
			for _, component := range []string{"api", "worker"} {
				cfg := load[config.API](t, r.environment(t, component))
				require.Equal(t, test.url, cfg.NATS.URL)
				require.Equal(t, test.copies, cfg.Jobs.Replicas)
				if test.want != nil {
					test.want(t, cfg.NATS)
				}
			}
			external := strings.Contains(test.values, "external")
			require.Equal(t, external, r.find("StatefulSet", "-nats") == nil)
			if !external {
				require.EqualValues(t, test.copies, *r.workload(t, "nats").Spec.Replicas)
			}
		})
	}
}
