package helm

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"sandbox-provisioner/internal/config"
)

func components(r rendering) []string {
	if r.find("StatefulSet", "-nats") == nil {
		return []string{"api", "worker"}
	}
	return []string{"api", "worker", "nats"}
}

func TestPodsHoldNoMoreThanTheyNeed(t *testing.T) {
	t.Parallel()
	eachScenario(t, func(t *testing.T, _ string, r rendering) {
		for _, component := range components(r) {
			p := r.workload(t, component)
			spec, container := p.Spec.Template.Spec, p.container()
			require.True(t, *spec.SecurityContext.RunAsNonRoot, component)
			require.EqualValues(t, 1000, *spec.SecurityContext.RunAsUser, component)
			require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, spec.SecurityContext.SeccompProfile.Type, component)
			require.True(t, *container.SecurityContext.ReadOnlyRootFilesystem, component)
			require.False(t, *container.SecurityContext.AllowPrivilegeEscalation, component)
			require.Equal(t, []corev1.Capability{"ALL"}, container.SecurityContext.Capabilities.Drop, component)
			require.False(t, *spec.EnableServiceLinks, component)
			require.Equal(t, component != "nats", *spec.AutomountServiceAccountToken, component)
			require.NotEmpty(t, container.Resources.Requests.Memory().String(), component)
			require.False(t, container.Resources.Limits.Memory().IsZero(), component)
			require.NotNil(t, container.LivenessProbe, component)
			require.NotNil(t, container.ReadinessProbe, component)
			for _, source := range container.EnvFrom {
				require.Nil(t, source.SecretRef, "secrets are taken one by one")
			}
		}
	})
}

func TestProgramsAreKilledOnlyAfterTheyHadTimeToEnd(t *testing.T) {
	t.Parallel()
	const fetch = 2 * time.Second // the longest request for jobs, which ends before a worker does
	eachScenario(t, func(t *testing.T, _ string, r rendering) {
		api, worker := r.workload(t, "api").Spec.Template.Spec, r.workload(t, "worker").Spec.Template.Spec
		http := load[config.API](t, r.environment(t, "api")).HTTP
		require.Greater(t, seconds(api.TerminationGracePeriodSeconds), http.ShutdownDelay+http.ShutdownWait)
		drain := load[config.Worker](t, r.environment(t, "worker")).Worker.DrainWait
		require.Greater(t, seconds(worker.TerminationGracePeriodSeconds), drain+fetch)
	})
}

func seconds(n *int64) time.Duration { return time.Duration(*n) * time.Second }

func TestRequestsInFlightOutliveTheirReplica(t *testing.T) {
	t.Parallel()
	r := render(t, "")
	http := load[config.API](t, r.environment(t, "api")).HTTP
	require.Equal(t, 5*time.Second, http.ShutdownDelay, "nodes need time to learn that it leaves")
	require.Greater(t, http.ShutdownWait, 25*time.Second, "the longest wait that a client may ask for")
	for _, component := range []string{"-api", "-worker"} {
		strategy := get[appsv1.Deployment](t, r, "Deployment", component).Spec.Strategy.RollingUpdate
		require.Zero(t, strategy.MaxUnavailable.IntValue(), "a replica goes before its successor is ready")
	}
}

func TestNewReplicasServeOnlyWhenTheyCan(t *testing.T) {
	t.Parallel()
	api := render(t, "").workload(t, "api").container()
	require.Equal(t, "/readyz", api.StartupProbe.HTTPGet.Path)
	require.Equal(t, "/livez", api.ReadinessProbe.HTTPGet.Path, "without NATS an answer 503 is better than none")
	require.Equal(t, "/livez", api.LivenessProbe.HTTPGet.Path, "a restart does not cure NATS")
	worker := render(t, "").workload(t, "worker").container()
	require.Equal(t, "/readyz", worker.ReadinessProbe.HTTPGet.Path)
	require.Equal(t, "/livez", worker.LivenessProbe.HTTPGet.Path)
}

func TestImages(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, values, want string }{
		{"local ones by default", "", "sandbox-provisioner-api:0.1.0"},
		{"of a tag", "image: {tag: v9}", "sandbox-provisioner-api:v9"},
		{"of a registry", "image: {registry: r.example.com/x}", "r.example.com/x/sandbox-provisioner-api:0.1.0"},
		{"of a registry with a slash too many", "image: {registry: r.example.com/x/, tag: v9}", "r.example.com/x/sandbox-provisioner-api:v9"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := render(t, test.values)
			require.Equal(t, test.want, r.workload(t, "api").container().Image)
			require.Equal(t, strings.ReplaceAll(test.want, "-api", "-worker"), r.workload(t, "worker").container().Image)
		})
	}
}

func TestServiceOfTheAPI(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, values, service string
		port                  int32
		kind                  corev1.ServiceType
	}{
		{"has a name of its own", "", "dev-sandbox-provisioner-api", 8002, corev1.ServiceTypeClusterIP},
		{"can be where DeerFlow's gateway looks", "api: {service: {name: provisioner}}", "provisioner", 8002, corev1.ServiceTypeClusterIP},
		{"can have another port and type", "api: {service: {port: 80, type: LoadBalancer}}", "dev-sandbox-provisioner-api", 80, corev1.ServiceTypeLoadBalancer},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := render(t, test.values)
			for _, o := range r.objects {
				if o.GetKind() != "Service" || o.GetName() != test.service {
					continue
				}
				service := as[corev1.Service](t, o)
				require.Equal(t, test.kind, service.Spec.Type)
				require.Equal(t, test.port, service.Spec.Ports[0].Port)
				require.Equal(t, "http", service.Spec.Ports[0].TargetPort.StrVal)
				require.Subset(t, r.workload(t, "api").Spec.Template.Labels, service.Spec.Selector)
				require.NotSubset(t, r.workload(t, "worker").Spec.Template.Labels, service.Spec.Selector)
				return
			}
			t.Fatalf("there is no Service %s", test.service)
		})
	}
}

func TestKeyComesFromTheSecretThatWasAskedFor(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, values, secret, key string
		made                      bool
	}{
		{"one that is generated", "", fullname, "PROVISIONER_API_KEY", true},
		{"one with the value", "apiKey: {value: k}", fullname, "PROVISIONER_API_KEY", true},
		{"one that exists", "apiKey: {existingSecret: mine}", "mine", "PROVISIONER_API_KEY", false},
		{"one that exists, under another name", "apiKey: {existingSecret: mine, existingSecretKey: k}", "mine", "k", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := render(t, test.values)
			want := &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: test.secret}, Key: test.key}
			require.Equal(t, want, r.workload(t, "api").env(t, "PROVISIONER_API_KEY").ValueFrom.SecretKeyRef)
			require.Nil(t, r.workload(t, "worker").env(t, "PROVISIONER_API_KEY"), "the worker has no use for it")
			require.Equal(t, test.made, r.find("Secret", "") != nil)
			if test.made {
				require.NotEmpty(t, get[corev1.Secret](t, r, "Secret", "").Data["PROVISIONER_API_KEY"])
			}
		})
	}
}

func TestNumberOfReplicasHasOneMaster(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, values string
		api, worker  bool // set by the chart
		kinds        map[string]int
	}{
		{"the chart", "", true, true, nil},
		{"an autoscaler of the api", "autoscaling: {api: {enabled: true}}", false, true, map[string]int{"HorizontalPodAutoscaler": 1}},
		{"an autoscaler of the worker", "autoscaling: {worker: {enabled: true}}", true, false, map[string]int{"HorizontalPodAutoscaler": 1}},
		{"KEDA for the worker", "keda: {enabled: true}", true, false, map[string]int{"ScaledObject": 1}},
		{"both", "autoscaling: {api: {enabled: true}}\nkeda: {enabled: true}", false, false, map[string]int{"HorizontalPodAutoscaler": 1, "ScaledObject": 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := render(t, test.values)
			require.Equal(t, test.api, r.workload(t, "api").Spec.Replicas != nil)
			require.Equal(t, test.worker, r.workload(t, "worker").Spec.Replicas != nil)
			for _, kind := range []string{"HorizontalPodAutoscaler", "ScaledObject"} {
				require.Equal(t, test.kinds[kind], r.kinds()[kind], kind)
			}
			for _, component := range []string{"-api", "-worker"} {
				if r.find("HorizontalPodAutoscaler", component) != nil {
					hpa := get[autoscalingv2.HorizontalPodAutoscaler](t, r, "HorizontalPodAutoscaler", component)
					require.Equal(t, fullname+component, hpa.Spec.ScaleTargetRef.Name)
					require.EqualValues(t, 2, *hpa.Spec.MinReplicas)
				}
			}
		})
	}
}

func TestKEDALooksAtTheConsumerOfTheWorkers(t *testing.T) {
	t.Parallel()
	object := render(t, "keda: {enabled: true}\nclusterName: east").find("ScaledObject", "-worker")
	triggers := object.Object["spec"].(map[string]any)["triggers"].([]any)
	require.Equal(t, map[string]any{
		"type": "nats-jetstream",
		"metadata": map[string]any{
			"natsServerMonitoringEndpoint": "dev-sandbox-provisioner-nats-headless.agents.svc.cluster.local:8222",
			"account":                      "$G",
			"stream":                       "SANDBOX_JOBS",
			"consumer":                     "east",
			"lagThreshold":                 "64",
		},
	}, triggers[0])
}

func TestDrainsTakeOnePodAtATime(t *testing.T) {
	t.Parallel()
	eachScenario(t, func(t *testing.T, name string, r rendering) {
		for _, component := range components(r) {
			if name == "least" {
				require.Nil(t, r.find("PodDisruptionBudget", "-"+component))
				continue
			}
			budget := get[policyv1.PodDisruptionBudget](t, r, "PodDisruptionBudget", "-"+component)
			require.Equal(t, 1, budget.Spec.MaxUnavailable.IntValue())
			require.Subset(t, r.workload(t, component).Spec.Template.Labels, budget.Spec.Selector.MatchLabels)
		}
	})
}

func TestPodsSpreadOverNodesAndZones(t *testing.T) {
	t.Parallel()
	eachScenario(t, func(t *testing.T, name string, r rendering) {
		for _, component := range components(r) {
			template := r.workload(t, component).Spec.Template
			var keys []string
			for _, c := range template.Spec.TopologySpreadConstraints {
				keys = append(keys, c.TopologyKey)
				require.Subset(t, template.Labels, c.LabelSelector.MatchLabels)
			}
			want := []string{"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
			if name == "least" {
				want = nil
			}
			require.Equal(t, want, keys, component)
		}
	})
}

// Selectors cannot be changed, and a Pod template that changes is a restart.
func TestANewVersionOfTheChartRestartsNothingByItself(t *testing.T) {
	t.Parallel()
	next := loadChart(t)
	next.Metadata.Version = "9.9.9"
	for name, values := range scenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := render(t, values)
			after, err := tryRender(t, next, values)
			require.NoError(t, err)
			for _, component := range components(before) {
				require.Equal(t, before.spec(t, component), after.spec(t, component))
			}
		})
	}
}

func TestASettingThatChangesRestartsItsPods(t *testing.T) {
	t.Parallel()
	before := render(t, fixed)
	for _, test := range []struct {
		name, values string
		programs     bool
		nats         bool
	}{
		{"the log level", fixed + "logLevel: debug", true, false},
		{"the key", "apiKey: {value: other}\nnats: {auth: {token: golden-token-0123}}", true, false},
		{"the token of NATS", "apiKey: {value: golden-key}\nnats: {auth: {token: golden-token-4567}}", true, true},
		{"the labels of a network policy", fixed + "networkPolicy: {sandbox: {gatewayPodLabels: {a: b}}}", false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			after := render(t, test.values)
			for component, want := range map[string]bool{"api": test.programs, "worker": test.programs, "nats": test.nats} {
				require.Equal(t, want, before.spec(t, component) != after.spec(t, component), component)
			}
		})
	}
}

func TestNamesFitWhateverTheReleaseIsCalled(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long-", 7) + "name" // and cut after that
	r, err := tryRender(t, loadChart(t), "nats: {replicas: 3}\nserviceMonitor: {enabled: true}\nnameOverride: "+long)
	require.NoError(t, err)
	for _, o := range r.objects {
		limit := 63
		if o.GetKind() == "StatefulSet" {
			limit = 52 // a hash is appended to make a label
		}
		require.LessOrEqual(t, len(o.GetName()), limit, o.GetName())
	}
}
