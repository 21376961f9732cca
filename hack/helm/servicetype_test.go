package helm

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestSandboxesAreReachedFromInsideUnlessSomebodyAsksForNodePort(t *testing.T) {
	t.Parallel()
	hostIP := &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.hostIP"}}
	for _, test := range []struct {
		name, values string
		want         string
		host         *corev1.EnvVar
	}{
		{name: "by default", values: "", want: "ClusterIP"},
		{name: "when it says ClusterIP", values: "sandboxServiceType: ClusterIP", want: "ClusterIP"},
		{name: "when it is empty", values: `sandboxServiceType: ""`, want: "ClusterIP"},
		{name: "when it is null", values: "sandboxServiceType: null", want: "ClusterIP"},
		{name: "when it has no value", values: "sandboxServiceType:", want: "ClusterIP"},
		{name: "when only nodeHost is set", values: "nodeHost: 192.0.2.1", want: "ClusterIP"},
		{
			name: "not in NodePort mode", values: "sandboxServiceType: NodePort", want: "NodePort",
			host: &corev1.EnvVar{Name: "NODE_HOST", ValueFrom: hostIP},
		},
		{
			name: "not in NodePort mode with nodeHost", values: "sandboxServiceType: NodePort\nnodeHost: 192.0.2.1", want: "NodePort",
			host: &corev1.EnvVar{Name: "NODE_HOST", Value: "192.0.2.1"},
		},
		{
			name: "not in NodePort mode with an empty nodeHost", values: "sandboxServiceType: NodePort\nnodeHost: \"\"", want: "NodePort",
			host: &corev1.EnvVar{Name: "NODE_HOST", ValueFrom: hostIP},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := render(t, test.values)
			for _, component := range []string{"api", "worker"} {
				p := r.workload(t, component)
				require.Equal(t, &corev1.EnvVar{Name: "SANDBOX_SERVICE_TYPE", Value: test.want}, p.env(t, "SANDBOX_SERVICE_TYPE"), component)
				require.Equal(t, test.host, p.env(t, "NODE_HOST"), component)
			}
			require.NotContains(t, get[corev1.ConfigMap](t, r, "ConfigMap", "").Data, "NODE_HOST")
		})
	}
}

func TestNotesSayHowSandboxesAreReached(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, values string
		want, not    []string
	}{
		{
			name: "by cluster DNS, without a warning", values: "",
			want: []string{"http://sandbox-<id>-svc.deer-flow.svc.cluster.local:8080", "http://dev-sandbox-provisioner-api.agents.svc.cluster.local:8002"},
			not:  []string{"WARNING", "NodePort"},
		},
		{
			name: "by the node's address, with a warning", values: "sandboxServiceType: NodePort",
			want: []string{"WARNING: sandboxServiceType is NodePort", "http://<address of the node"},
			not:  []string{"sandbox-<id>-svc"},
		},
		{
			name: "by the host that was given, with a warning", values: "sandboxServiceType: NodePort\nnodeHost: gw.example.com",
			want: []string{"WARNING: sandboxServiceType is NodePort", "http://gw.example.com:"},
			not:  []string{"sandbox-<id>-svc"},
		},
		{
			name: "and that nothing keeps them apart", values: "networkPolicy: {sandbox: {enabled: false}}",
			want: []string{"WARNING: networkPolicy.sandbox is off"},
		},
		{
			name: "and that jobs are not kept", values: "nats: {storage: {enabled: false}}",
			want: []string{"WARNING: nats.storage is off"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			// A sentence may be broken anywhere.
			notes := strings.Join(strings.Fields(render(t, test.values).notes), " ")
			for _, want := range test.want {
				require.Contains(t, notes, want)
			}
			for _, not := range test.not {
				require.NotContains(t, notes, not)
			}
		})
	}
}
