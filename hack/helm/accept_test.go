package helm

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"sandbox-provisioner/internal/testenv"
)

// Every object of every scenario, as the API server would take it: defaults, validation, unknown fields. Nothing is stored.
func TestAPIServerAccepts(t *testing.T) {
	t.Parallel()
	cluster := testenv.Cluster(t)
	client, err := dynamic.NewForConfig(cluster.Config)
	require.NoError(t, err)
	for _, resource := range []schema.GroupVersionResource{
		{Group: "monitoring.coreos.com", Version: "v1", Resource: "servicemonitors"},
		{Group: "monitoring.coreos.com", Version: "v1", Resource: "prometheusrules"},
		{Group: "keda.sh", Version: "v1alpha1", Resource: "scaledobjects"},
	} {
		define(t, client, resource)
	}
	for _, name := range []string{releaseNamespace, "deer-flow", "sandboxes"} {
		_, err := cluster.Core.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			require.NoError(t, err)
		}
	}
	eachScenario(t, func(t *testing.T, _ string, r rendering) {
		for _, object := range r.objects {
			t.Run(object.GetKind()+" "+object.GetName(), func(t *testing.T) {
				t.Parallel()
				dryRun(t, client, object)
			})
		}
	})
}

func dryRun(t *testing.T, client dynamic.Interface, object *unstructured.Unstructured) {
	t.Helper()
	resource, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
	target := dynamic.ResourceInterface(client.Resource(resource))
	if object.GetKind() != "Namespace" {
		namespace := object.GetNamespace()
		if namespace == "" {
			namespace = releaseNamespace
		}
		target = client.Resource(resource).Namespace(namespace)
	}
	content, err := json.Marshal(object)
	require.NoError(t, err)
	force := true
	_, err = target.Patch(t.Context(), object.GetName(), types.ApplyPatchType, content, metav1.PatchOptions{
		DryRun: []string{metav1.DryRunAll}, FieldManager: "test", FieldValidation: metav1.FieldValidationStrict, Force: &force,
	})
	require.NoError(t, err)
}

// plurals and their kinds, of what other projects define.
var kindOf = map[string]string{
	"servicemonitors": "ServiceMonitor", "prometheusrules": "PrometheusRule", "scaledobjects": "ScaledObject",
}

// define makes the API server know a kind of another project, by name alone: its fields are not checked.
func define(t *testing.T, client dynamic.Interface, resource schema.GroupVersionResource) {
	t.Helper()
	kind := kindOf[resource.Resource]
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   map[string]any{"name": resource.GroupResource().String()},
		"spec": map[string]any{
			"group": resource.Group, "scope": "Namespaced",
			"names": map[string]any{"plural": resource.Resource, "kind": kind},
			"versions": []any{map[string]any{
				"name": resource.Version, "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object", "x-kubernetes-preserve-unknown-fields": true,
				}},
			}},
		},
	}}
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	_, err := definitions.Create(t.Context(), definition, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
	testenv.Until(t, 20*time.Second, func() error {
		_, err := client.Resource(resource).List(t.Context(), metav1.ListOptions{})
		return err
	})
}

func TestPodsAreAllowedWherePodSecurityIsRestricted(t *testing.T) {
	t.Parallel()
	cluster := testenv.Cluster(t)
	namespace := cluster.Namespace(t)
	_, err := cluster.Core.Namespaces().Patch(t.Context(), namespace, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	create := func(spec corev1.PodSpec) error {
		spec.ServiceAccountName, spec.PriorityClassName = "", ""
		_, err := cluster.Core.Pods(namespace).Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "p-"}, Spec: spec,
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	require.ErrorContains(t, create(corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}), "violates PodSecurity")
	eachScenario(t, func(t *testing.T, _ string, r rendering) {
		for _, component := range components(r) {
			spec := r.workload(t, component).Spec.Template.Spec
			if component == "nats" { // its volume is a StatefulSet's template
				spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "jetstream"})
			}
			require.NoError(t, create(spec), component)
		}
	})
}
