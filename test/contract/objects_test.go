// Package contract_test holds the objects that we make against a real API server.
package contract_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"sandbox-provisioner/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// Each golden file is what one combination of settings and request renders; internal/k8s checks that it really does.
func TestEveryGoldenObjectIsAcceptedByTheAPIServer(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../internal/k8s/testdata/objects/*.yaml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 30, "combinations")
	cluster := testenv.Cluster(t)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			t.Parallel()
			content, err := os.ReadFile(file)
			require.NoError(t, err)
			podYAML, serviceYAML, found := bytes.Cut(content, []byte("---\n"))
			require.True(t, found)
			pod, service := &corev1.Pod{}, &corev1.Service{}
			require.NoError(t, yaml.UnmarshalStrict(podYAML, pod))
			require.NoError(t, yaml.UnmarshalStrict(serviceYAML, service))
			namespace := cluster.Namespace(t)
			pod.Namespace, service.Namespace = namespace, namespace
			opts := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}

			created, err := cluster.Core.Pods(namespace).Create(t.Context(), pod, opts)
			require.NoError(t, err)
			require.Equal(t, mountPaths(pod), mountPaths(created), "the API server keeps the mounts as they are")

			serving, err := cluster.Core.Services(namespace).Create(t.Context(), service, opts)
			require.NoError(t, err)
			if service.Spec.Type == corev1.ServiceTypeClusterIP {
				require.Zero(t, serving.Spec.Ports[0].NodePort, "a ClusterIP Service is not reachable on the nodes")
			} else {
				require.NotZero(t, serving.Spec.Ports[0].NodePort)
			}
		})
	}
}

func mountPaths(pod *corev1.Pod) map[string][]string {
	paths := map[string][]string{}
	for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		for _, m := range c.VolumeMounts {
			paths[c.Name] = append(paths[c.Name], m.MountPath)
		}
	}
	return paths
}
