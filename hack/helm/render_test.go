package helm

import (
	"bytes"
	"io"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

const (
	chartDir = "../../deploy/helm/sandbox-provisioner"
	// Where the tests install it.
	releaseName      = "dev"
	releaseNamespace = "agents"
	// fullname is how all names begin then.
	fullname = "dev-sandbox-provisioner"
)

// kubeVersion is that of the development cluster.
var kubeVersion = &chartutil.KubeVersion{Version: "v1.36.3", Major: "1", Minor: "36"}

// A rendering is what the chart makes of some values.
type rendering struct {
	manifest, notes string
	objects         []*unstructured.Unstructured
}

// rendered keeps what was rendered, by values: many tests look at the same, and change nothing.
var rendered sync.Map

// render renders the chart in the repository with values, a YAML file's content.
func render(t testing.TB, values string) rendering {
	t.Helper()
	if r, found := rendered.Load(values); found {
		return r.(rendering)
	}
	r, err := tryRender(t, loadChart(t), values)
	require.NoError(t, err)
	rendered.Store(values, r)
	return r
}

// tryRender is render for values that may be refused, and for another chart.
func tryRender(t testing.TB, c *chart.Chart, values string) (rendering, error) {
	t.Helper()
	install := action.NewInstall(&action.Configuration{Log: func(string, ...any) {}})
	install.DryRun, install.ClientOnly = true, true
	install.KubeVersion = kubeVersion
	install.ReleaseName, install.Namespace = releaseName, releaseNamespace
	release, err := install.Run(c, parse(t, values))
	if err != nil {
		return rendering{}, err
	}
	return rendering{manifest: release.Manifest, notes: release.Info.Notes, objects: decode(t, release.Manifest)}, nil
}

func loadChart(t testing.TB) *chart.Chart {
	t.Helper()
	c, err := loader.Load(chartDir)
	require.NoError(t, err)
	return c
}

func parse(t testing.TB, values string) map[string]any {
	t.Helper()
	parsed, err := chartutil.ReadValues([]byte(values))
	require.NoError(t, err)
	return parsed
}

// decode splits a manifest into objects. A key that occurs twice is an error: the last one would win without a word.
func decode(t testing.TB, manifest string) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	documents := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewBufferString(manifest)))
	defer func() { _ = documents.Close() }()
	buffer := make([]byte, 4<<20)
	for {
		n, err := documents.Read(buffer)
		if err == io.EOF {
			return objects
		}
		require.NoError(t, err)
		object := &unstructured.Unstructured{}
		require.NoError(t, sigsyaml.UnmarshalStrict(buffer[:n], &object.Object), "%s", buffer[:n])
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// find is the object of a kind whose name is fullname and suffix; nil when there is none.
func (r rendering) find(kind, suffix string) *unstructured.Unstructured {
	i := slices.IndexFunc(r.objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == kind && o.GetName() == fullname+suffix
	})
	if i < 0 {
		return nil
	}
	return r.objects[i]
}

// kinds counts the objects of each kind.
func (r rendering) kinds() map[string]int {
	n := map[string]int{}
	for _, o := range r.objects {
		n[o.GetKind()]++
	}
	return n
}

// get is find with the object's own type. It wants the object to exist, and to have no field that its type does not.
func get[Object any](t testing.TB, r rendering, kind, suffix string) *Object {
	t.Helper()
	object := r.find(kind, suffix)
	require.NotNil(t, object, "%s %s%s is not rendered", kind, fullname, suffix)
	return as[Object](t, object)
}

func as[Object any](t testing.TB, object *unstructured.Unstructured) *Object {
	t.Helper()
	typed := new(Object)
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, typed, true),
		"%s %s", object.GetKind(), object.GetName())
	return typed
}

// program is the part of a Deployment or StatefulSet that both have.
type program struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Replicas *int32                 `json:"replicas"`
		Template corev1.PodTemplateSpec `json:"template"`
	} `json:"spec"`
}

// spec is all of it as text, for comparisons.
func (r rendering) spec(t testing.TB, component string) string {
	t.Helper()
	text, err := sigsyaml.Marshal(r.controller(t, component).Object["spec"])
	require.NoError(t, err)
	return string(text)
}

// controller is the Deployment of api or worker, or the StatefulSet of nats.
func (r rendering) controller(t testing.TB, component string) *unstructured.Unstructured {
	t.Helper()
	object := r.find("Deployment", "-"+component)
	if component == "nats" {
		object = r.find("StatefulSet", "-nats")
	}
	require.NotNil(t, object, component)
	return object
}

// workload is what matters of the controller.
func (r rendering) workload(t testing.TB, component string) program {
	t.Helper()
	var p program
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(r.controller(t, component).Object, &p))
	require.Len(t, p.Spec.Template.Spec.Containers, 1)
	return p
}

func (p program) container() corev1.Container { return p.Spec.Template.Spec.Containers[0] }

// env is the entry of a variable, nil when there is none. Two of one name are an error.
func (p program) env(t testing.TB, name string) *corev1.EnvVar {
	t.Helper()
	var found *corev1.EnvVar
	for _, e := range p.container().Env {
		if e.Name == name {
			require.Nil(t, found, "%s is there twice", name)
			found = &e
		}
	}
	return found
}
