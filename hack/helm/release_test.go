package helm

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	helmrelease "helm.sh/helm/v3/pkg/release"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"sandbox-provisioner/internal/testenv"
)

// A deployment is a release of the chart in the development cluster, in a namespace of its own.
type deployment struct {
	t         *testing.T
	cluster   *testenv.Kubernetes
	cfg       *action.Configuration
	namespace string
}

func newDeployment(t *testing.T) *deployment {
	t.Helper()
	cluster := testenv.Cluster(t)
	d := &deployment{t: t, cluster: cluster, cfg: &action.Configuration{}, namespace: cluster.Namespace(t)}
	flags := genericclioptions.NewConfigFlags(false)
	cache := t.TempDir()
	flags.KubeConfig, flags.Namespace, flags.CacheDir = &cluster.Kubeconfig, &d.namespace, &cache
	require.NoError(t, d.cfg.Init(flags, d.namespace, "secret", func(string, ...any) {}))
	return d
}

func (d *deployment) install(values string) rendering {
	d.t.Helper()
	return d.installChart(loadChart(d.t), values)
}

func (d *deployment) installChart(c *chart.Chart, values string) rendering {
	d.t.Helper()
	install := action.NewInstall(d.cfg)
	install.ReleaseName, install.Namespace, install.Timeout = releaseName, d.namespace, time.Minute
	release, err := install.Run(c, parse(d.t, values))
	require.NoError(d.t, err)
	d.t.Cleanup(func() {
		uninstall := action.NewUninstall(d.cfg)
		uninstall.IgnoreNotFound = true
		_, _ = uninstall.Run(releaseName)
	})
	return d.rendering(release)
}

func (d *deployment) upgrade(values string, opts ...func(*action.Upgrade)) rendering {
	d.t.Helper()
	upgrade := action.NewUpgrade(d.cfg)
	upgrade.Namespace, upgrade.Timeout = d.namespace, time.Minute
	for _, opt := range opts {
		opt(upgrade)
	}
	release, err := upgrade.Run(releaseName, loadChart(d.t), parse(d.t, values))
	require.NoError(d.t, err)
	return d.rendering(release)
}

func (d *deployment) rendering(release *helmrelease.Release) rendering {
	d.t.Helper()
	return rendering{manifest: release.Manifest, notes: release.Info.Notes, objects: decode(d.t, release.Manifest)}
}

// secret is a value in the cluster.
func (d *deployment) secret(suffix, key string) string {
	d.t.Helper()
	secret, err := d.cluster.Core.Secrets(d.namespace).Get(d.t.Context(), fullname+suffix, metav1.GetOptions{})
	require.NoError(d.t, err)
	return string(secret.Data[key])
}

// sandboxes is a namespace for sandboxes that exists before the release.
func (d *deployment) sandboxes() string {
	d.t.Helper()
	return d.cluster.Namespace(d.t)
}

func TestInstallsWithNothingButAKey(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	d.install("apiKey: {value: my-key}\nsandbox: {namespace: " + d.sandboxes() + "}")
	require.Equal(t, "my-key", d.secret("", "PROVISIONER_API_KEY"))
}

func TestSecretsAreGeneratedOnceAndKept(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	values := "sandbox: {namespace: " + d.sandboxes() + "}"
	first := d.install(values)
	key, token := d.secret("", "PROVISIONER_API_KEY"), d.secret("-nats", "token")
	require.Len(t, key, 40)
	require.Len(t, token, 40)
	require.NotEqual(t, key, token)

	second := d.upgrade(values)
	require.Equal(t, key, d.secret("", "PROVISIONER_API_KEY"))
	require.Equal(t, token, d.secret("-nats", "token"))
	for _, component := range components(first) {
		require.Equal(t, first.spec(t, component), second.spec(t, component), "the upgrade would restart it")
	}

	third := d.upgrade(values + "\nlogLevel: debug")
	require.Equal(t, key, d.secret("", "PROVISIONER_API_KEY"))
	require.NotEqual(t, second.spec(t, "api"), third.spec(t, "api"))

	d.upgrade(values + "\napiKey: {value: rotated}")
	require.Equal(t, "rotated", d.secret("", "PROVISIONER_API_KEY"))
	require.Equal(t, token, d.secret("-nats", "token"))
	d.upgrade(values)
	require.Equal(t, "rotated", d.secret("", "PROVISIONER_API_KEY"), "without a value it stays what it was")
}

func TestAnExistingSecretReplacesTheChartsOwn(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	values := "sandbox: {namespace: " + d.sandboxes() + "}"
	d.install(values)
	d.upgrade(values + "\napiKey: {existingSecret: mine}")
	_, err := d.cluster.Core.Secrets(d.namespace).Get(t.Context(), fullname, metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}

func TestJobsAreNotLostToAnotherNumberOfNATSServers(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	values := "sandbox: {namespace: " + d.sandboxes() + "}\n"
	d.install(values)
	upgrade := action.NewUpgrade(d.cfg)
	upgrade.Namespace = d.namespace
	_, err := upgrade.Run(releaseName, loadChart(t), parse(t, values+"nats: {replicas: 3}"))
	require.ErrorContains(t, err, "nats.replicas is 1 and cannot become 3 while jobs are kept")
	d.upgrade(values + "logLevel: debug")

	require.NoError(t, d.cluster.Core.RESTClient().Delete().AbsPath("/apis/apps/v1/namespaces", d.namespace, "statefulsets", fullname+"-nats").Do(t.Context()).Error())
	r := d.upgrade(values + "nats: {replicas: 3}")
	require.EqualValues(t, 3, *r.workload(t, "nats").Spec.Replicas, "when there are none any more")
}

// oldChart is the chart before it knew of the type of sandbox Services.
func oldChart(t *testing.T) *chart.Chart {
	t.Helper()
	c := loadChart(t)
	delete(c.Values, "sandboxServiceType")
	delete(c.Values, "nodeHost")
	c.Schema = nil
	return c
}

func TestUpgradesWithoutATypeEndInClusterIP(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name            string
		before, upgrade string
		old             bool
		opts            []func(*action.Upgrade)
	}{
		{name: "from NodePort, with a values file that no longer says so", before: "sandboxServiceType: NodePort\nnodeHost: a", upgrade: ""},
		{name: "from NodePort, with a values file that says null", before: "sandboxServiceType: NodePort", upgrade: "sandboxServiceType: null"},
		{name: "from NodePort, with a values file that says nothing", before: "sandboxServiceType: NodePort", upgrade: "sandboxServiceType: \"\""},
		{name: "from a chart that did not know of it", old: true},
		{
			name: "from a chart that did not know of it, with its values reused", old: true,
			opts: []func(*action.Upgrade){func(u *action.Upgrade) { u.ReuseValues = true }},
		},
		{
			name: "from a chart that did not know of it, with its values reused on new defaults", old: true,
			opts: []func(*action.Upgrade){func(u *action.Upgrade) { u.ResetThenReuseValues = true }},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := newDeployment(t)
			common := "sandbox: {namespace: " + d.sandboxes() + "}\n"
			c := loadChart(t)
			if test.old {
				c = oldChart(t)
			}
			d.installChart(c, common+test.before)
			r := d.upgrade(common+test.upgrade, test.opts...)
			for _, component := range []string{"api", "worker"} {
				live, err := d.cluster.Core.RESTClient().Get().AbsPath("/apis/apps/v1/namespaces", d.namespace, "deployments", fullname+"-"+component).DoRaw(t.Context())
				require.NoError(t, err)
				require.NotContains(t, string(live), "NODE_HOST")
				require.Equal(t, "ClusterIP", r.workload(t, component).env(t, "SANDBOX_SERVICE_TYPE").Value)
				require.Nil(t, r.workload(t, component).env(t, "NODE_HOST"))
			}
		})
	}
}

// What the README tells those who come from a NodePort default: the ports close, and the sandboxes live on.
func TestNodePortsOfLivingSandboxesCanBeClosed(t *testing.T) {
	t.Parallel()
	cluster := testenv.Cluster(t)
	services := cluster.Core.Services(cluster.Namespace(t))
	made, err := services.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "sandbox-a-svc", Labels: map[string]string{"app": "deer-flow-sandbox"}},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Name: "http", Port: 8080}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NotZero(t, made.Spec.Ports[0].NodePort)
	patched, err := services.Patch(t.Context(), made.Name, "application/strategic-merge-patch+json",
		[]byte(`{"spec":{"type":"ClusterIP"}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.Zero(t, patched.Spec.Ports[0].NodePort)
	require.Equal(t, made.Spec.ClusterIP, patched.Spec.ClusterIP)
}

func TestNamespaceOfTheSandboxes(t *testing.T) {
	t.Parallel()
	exists := func(d *deployment, name string) bool {
		namespace, err := d.cluster.Core.Namespaces().Get(d.t.Context(), name, metav1.GetOptions{})
		if err == nil {
			return namespace.DeletionTimestamp == nil
		}
		require.True(d.t, apierrors.IsNotFound(err), "%v", err)
		return false
	}
	t.Run("is created, kept by upgrades, and kept when the release goes", func(t *testing.T) {
		t.Parallel()
		d := newDeployment(t)
		name := d.namespace + "-sandboxes"
		values := "sandbox: {namespace: " + name + "}"
		t.Cleanup(func() { removeNamespace(d.cluster, name) })
		require.NotNil(t, namespaceIn(d.install(values)))
		require.True(t, exists(d, name))
		require.NotNil(t, namespaceIn(d.upgrade(values)))
		_, err := action.NewUninstall(d.cfg).Run(releaseName)
		require.NoError(t, err)
		require.True(t, exists(d, name))
		require.NotNil(t, namespaceIn(d.install(values)), "a release of the same name takes it over again")
	})
	t.Run("is left alone when it is somebody else's", func(t *testing.T) {
		t.Parallel()
		d := newDeployment(t)
		values := "sandbox: {namespace: " + d.sandboxes() + "}"
		require.Nil(t, namespaceIn(d.install(values)))
		require.Nil(t, namespaceIn(d.upgrade(values)))
	})
	t.Run("may be that of the release", func(t *testing.T) {
		t.Parallel()
		d := newDeployment(t)
		require.Nil(t, namespaceIn(d.install("sandbox: {namespace: "+d.namespace+"}")))
	})
	t.Run("is not looked at when it is not to be created", func(t *testing.T) {
		t.Parallel()
		require.Nil(t, namespaceIn(render(t, "sandbox: {createNamespace: false}")))
	})
}

func namespaceIn(r rendering) any {
	for _, o := range r.objects {
		if o.GetKind() == "Namespace" {
			return o
		}
	}
	return nil
}

func removeNamespace(cluster *testenv.Kubernetes, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := cluster.Core.Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err == nil {
		// Nothing else would finish the deletion.
		_, _ = cluster.Core.Namespaces().Finalize(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.UpdateOptions{})
	}
}
