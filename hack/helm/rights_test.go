package helm

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"sandbox-provisioner/internal/config"
	"sandbox-provisioner/internal/k8s"
	"sandbox-provisioner/internal/sandbox"
)

// A right is a verb on a resource, in one of the places below.
type right struct {
	verb, resource, where string
	api, worker           bool
}

// Where a right is asked for.
const (
	amongSandboxes = "among the sandboxes"
	besideRelease  = "beside the release"
	everywhere     = "everywhere"
)

var rights = []right{
	{"get", "pods", amongSandboxes, true, true},
	{"list", "pods", amongSandboxes, true, true},
	{"watch", "pods", amongSandboxes, true, true},
	{"create", "pods", amongSandboxes, false, true},
	{"delete", "pods", amongSandboxes, false, true},
	{"update", "pods", amongSandboxes, false, false},
	{"patch", "pods", amongSandboxes, false, false},
	{"deletecollection", "pods", amongSandboxes, false, false},
	{"create", "pods/exec", amongSandboxes, false, false},
	{"create", "pods/eviction", amongSandboxes, false, false},
	{"get", "pods/log", amongSandboxes, false, false},
	{"get", "services", amongSandboxes, true, true},
	{"list", "services", amongSandboxes, true, true},
	{"watch", "services", amongSandboxes, true, true},
	{"create", "services", amongSandboxes, false, true},
	{"delete", "services", amongSandboxes, false, true},
	{"update", "services", amongSandboxes, false, false},
	{"patch", "services", amongSandboxes, false, false},
	{"get", "namespaces", amongSandboxes, false, true},
	{"delete", "namespaces", amongSandboxes, false, false},
	{"list", "events", amongSandboxes, true, false},
	{"create", "events", amongSandboxes, false, false},
	{"get", "secrets", amongSandboxes, false, false},
	{"list", "secrets", amongSandboxes, false, false},
	{"get", "configmaps", amongSandboxes, false, false},
	{"create", "serviceaccounts/token", amongSandboxes, false, false},
	{"get", "persistentvolumeclaims", amongSandboxes, false, false},
	{"get", "pods", besideRelease, false, false},
	{"create", "pods", besideRelease, false, false},
	{"get", "secrets", besideRelease, false, false},
	{"get", "namespaces", besideRelease, false, false},
	{"list", "pods", everywhere, false, false},
	{"create", "pods", everywhere, false, false},
	{"list", "secrets", everywhere, false, false},
	{"list", "namespaces", everywhere, false, false},
	{"create", "namespaces", everywhere, false, false},
	{"list", "nodes", everywhere, false, false},
}

func TestProgramsMayDoWhatTheyNeedAndNothingElse(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	sandboxes := d.sandboxes()
	d.install("sandbox: {namespace: " + sandboxes + "}")
	for _, component := range []string{"api", "worker"} {
		client, err := authorizationclient.NewForConfig(d.as(component))
		require.NoError(t, err)
		for _, r := range rights {
			namespace := map[string]string{amongSandboxes: sandboxes, besideRelease: d.namespace}[r.where]
			want := map[string]bool{"api": r.api, "worker": r.worker}[component]
			name := " may not "
			if want {
				name = " may "
			}
			t.Run(component+name+r.verb+" "+r.resource+" "+r.where, func(t *testing.T) {
				t.Parallel()
				review, err := client.SelfSubjectAccessReviews().Create(t.Context(), question(r, namespace), metav1.CreateOptions{})
				require.NoError(t, err)
				require.Equal(t, want, review.Status.Allowed, review.Status.Reason)
			})
		}
	}
}

func question(r right, namespace string) *authorizationv1.SelfSubjectAccessReview {
	resource, sub, _ := strings.Cut(r.resource, "/")
	attributes := &authorizationv1.ResourceAttributes{Verb: r.verb, Resource: resource, Subresource: sub, Namespace: namespace}
	if resource == "namespaces" {
		attributes.Name = namespace
	}
	return &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes}}
}

// as connects with the ServiceAccount of a program.
func (d *deployment) as(component string) *rest.Config {
	cfg := rest.CopyConfig(d.cluster.Config)
	cfg.Impersonate.UserName = "system:serviceaccount:" + d.namespace + ":" + fullname + "-" + component
	return cfg
}

func (d *deployment) sandboxCluster(component, namespace string) *k8s.Cluster {
	d.t.Helper()
	core, err := k8s.NewCore(d.as(component))
	require.NoError(d.t, err)
	settings := load[config.API](d.t, nil).Sandbox
	settings.Namespace, settings.ServiceType = namespace, k8s.ClusterIP
	return k8s.New(core, settings, 5*time.Second)
}

func TestTheCodeMakesDoWithItsRights(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	sandboxes := d.sandboxes()
	d.install("sandbox: {namespace: " + sandboxes + "}")
	lineage := sandbox.Lineage{Generation: sandbox.Generation{Stream: 1, Seq: 1}}
	later := sandbox.Lineage{Generation: sandbox.Generation{Stream: 1, Seq: 2}}
	spec := sandbox.Spec{ThreadID: "t", UserID: "u", SkillsPath: "/mnt/skills"}

	t.Run("the worker starts when the namespace exists", func(t *testing.T) {
		core, err := k8s.NewCore(d.as("worker"))
		require.NoError(t, err)
		require.NoError(t, k8s.EnsureNamespace(t.Context(), core, sandboxes))
	})
	t.Run("the worker says what it may not do when it does not", func(t *testing.T) {
		core, err := k8s.NewCore(d.as("worker"))
		require.NoError(t, err)
		require.ErrorContains(t, k8s.EnsureNamespace(t.Context(), core, "elsewhere"), `cannot read namespace "elsewhere"`)
	})
	t.Run("the worker creates, the api reads, the worker removes", func(t *testing.T) {
		ctx := t.Context()
		worker, api := d.sandboxCluster("worker", sandboxes), d.sandboxCluster("api", sandboxes)
		_, err := worker.Ensure(ctx, "a", spec, lineage)
		require.NoError(t, err)
		_, err = worker.Ensure(ctx, "a", spec, lineage)
		require.NoError(t, err, "a second time")
		require.NoError(t, api.Ping(ctx))
		seen, err := api.Get(ctx, "a")
		require.NoError(t, err)
		require.True(t, seen.Pod && seen.Service)
		all, err := api.List(ctx)
		require.NoError(t, err)
		require.Len(t, all, 1)
		require.NoError(t, worker.Remove(ctx, "a", later))
	})
	t.Run("the api cannot create", func(t *testing.T) {
		_, err := d.sandboxCluster("api", sandboxes).Ensure(t.Context(), "b", spec, lineage)
		require.ErrorContains(t, err, "forbidden")
		seen, err := d.sandboxCluster("api", sandboxes).Get(t.Context(), "b")
		require.NoError(t, err)
		require.False(t, seen.Pod || seen.Service)
	})
}
