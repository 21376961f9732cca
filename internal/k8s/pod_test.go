package k8s

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestCapacityIsReadBackFromTheSandboxContainer(t *testing.T) {
	t.Parallel()
	env := func(name string, vars ...corev1.EnvVar) corev1.Container {
		return corev1.Container{Name: name, Env: vars}
	}
	value := func(v string) corev1.EnvVar { return corev1.EnvVar{Name: "MAX_SHELL_SESSIONS", Value: v} }
	other := corev1.EnvVar{Name: "OTHER", Value: "7"}
	for _, tt := range []struct {
		name       string
		containers []corev1.Container
		want       int
		wantErr    string
	}{
		{"a number", []corev1.Container{env("sandbox", other, value("13"))}, 13, ""},
		{"no variable is the default", []corev1.Container{env("sandbox", other)}, 10, ""},
		{"another container does not count", []corev1.Container{env("lark-cli-broker", value("3")), env("sandbox", value("13"))}, 13, ""},
		{"of two the last one counts", []corev1.Container{env("sandbox", value("3"), value("13"))}, 13, ""},
		{"no container of that name", []corev1.Container{env("main", value("13"))}, 0, `no container named "sandbox"`},
		{"no containers", nil, 0, `no container named "sandbox"`},
		{"not a number", []corev1.Container{env("sandbox", value("many"))}, 0, `MAX_SHELL_SESSIONS="many"`},
		{"empty, as when it comes from a ConfigMap", []corev1.Container{env("sandbox", value(""))}, 0, `MAX_SHELL_SESSIONS=""`},
		{"less than one", []corev1.Container{env("sandbox", value("0"))}, 0, `MAX_SHELL_SESSIONS="0"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := Capacity(&corev1.Pod{Spec: corev1.PodSpec{Containers: tt.containers}})
			require.Equal(t, tt.want, got)
			if tt.wantErr == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tt.wantErr)
			}
		})
	}
}

func TestWhatThePodPromisesIsReadBack(t *testing.T) {
	t.Parallel()
	s, spec := stock(), ask()
	larkImages(&s)
	spec.MaxShellSessions, spec.LarkBroker = 13, true
	pod, _ := build(t, s, spec)
	got, err := Capacity(pod)
	require.NoError(t, err)
	require.Equal(t, 13, got)
	require.True(t, HasBroker(pod))

	pod, _ = build(t, s, ask())
	got, err = Capacity(pod)
	require.NoError(t, err)
	require.Equal(t, 10, got)
	require.False(t, HasBroker(pod))
}

func TestURL(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		set      func(*Settings)
		nodePort int32
		want     string
	}{
		{"node port", func(*Settings) {}, 31234, "http://host.docker.internal:31234"},
		{"a node port that is not known yet", func(*Settings) {}, 0, ""},
		{"an IPv6 node", func(s *Settings) { s.NodeHost = "fd00::1" }, 31234, "http://[fd00::1]:31234"},
		{"an IPv6 node in brackets", func(s *Settings) { s.NodeHost = "[fd00::1]" }, 31234, "http://[fd00::1]:31234"},
		{"cluster IP needs no port", func(s *Settings) { s.ServiceType = ClusterIP }, 0,
			"http://sandbox-a1-svc.deer-flow.svc.cluster.local:8080"},
		{"cluster IP does not look at the node port", func(s *Settings) { s.ServiceType = ClusterIP }, 31234,
			"http://sandbox-a1-svc.deer-flow.svc.cluster.local:8080"},
		{"another cluster domain and port", func(s *Settings) {
			s.ServiceType, s.ClusterDomain, s.Namespace, s.Port = ClusterIP, "k8s.example", "sandboxes", 9090
		}, 0, "http://sandbox-a1-svc.sandboxes.svc.k8s.example:9090"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := stock()
			tt.set(&s)
			require.Equal(t, tt.want, s.URL("a1", tt.nodePort))
		})
	}
}

func BenchmarkPod(b *testing.B) {
	s, spec := stock(), ask()
	all(larkImages, bothClaims)(&s)
	s.SkillsSubPathTemplate = "users/{user_id}/skills"
	spec.LarkBroker, spec.ExtraMounts = true, gateway()
	b.ReportAllocs()
	for b.Loop() {
		s.Pod("19fa7291c0de4b1f", spec, goldenGeneration)
	}
}
