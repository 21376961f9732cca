package helm

import (
	"maps"
	"slices"
	"testing"
)

// fixed replaces what would be random.
const fixed = `
apiKey: {value: golden-key}
nats: {auth: {token: golden-token-0123}}
`

// scenarios are the ways to install the chart that every general test goes through.
var scenarios = map[string]string{
	"default": fixed,
	"nodeport": fixed + `
sandboxServiceType: NodePort
`,
	"nodeport-nodehost": fixed + `
sandboxServiceType: NodePort
nodeHost: gateway.example.com
`,
	"empty-type": fixed + `
sandboxServiceType: ""
nodeHost: gateway.example.com
`,
	"missing-type": fixed + `
sandboxServiceType: null
`,
	"external-nats": `
apiKey: {value: golden-key}
nats:
  external:
    url: nats://a.example.com:4222,nats://b.example.com:4222
    streamReplicas: 3
    auth: creds
    existingSecret: nats-account
`,
	"three-servers": `
apiKey: {value: golden-key}
nats: {replicas: 3, auth: {token: golden-token-0123}}
`,
	"existing-secret": `
apiKey: {existingSecret: deer-flow-app, existingSecretKey: SOME_KEY}
nats: {auth: {existingSecret: nats-token}}
`,
	"least": fixed + `
topologySpread: ""
podDisruptionBudget: {enabled: false}
networkPolicy:
  sandbox: {enabled: false}
  nats: {enabled: false}
rbac: {create: false}
serviceAccount: {api: reader, worker: writer}
api: {shutdownDelaySeconds: 0}
sandbox: {namespace: agents}
`,
	"everything": `
nameOverride: provisioner
fullnameOverride: dev-sandbox-provisioner
commonLabels: {team: agents}
image: {registry: registry.example.com/agents/, tag: v1.2.3, pullPolicy: Always, pullSecrets: [{name: registry}]}
apiKey: {value: golden-key}
sandboxServiceType: NodePort
nodeHost: "2001:db8::7"
sandbox:
  namespace: sandboxes
  namespaceLabels: {pod-security.kubernetes.io/enforce: privileged}
  image: registry.example.com/sandbox:3
  port: 9000
  clusterDomain: example.local
  hostBaseDir: /srv/deer-flow
  threadsHostPath: /srv/deer-flow/threads
  skillsClaim: skills
  skillsSubPathTemplate: users/{user_id}
  userDataClaim: user-data
  larkInitImage: registry.example.com/lark-init:1
  larkBrokerImage: registry.example.com/lark-broker:1
  larkDenySubcommands: auth
  allowPrivilegeEscalation: false
  automountServiceAccountToken: true
  enableServiceLinks: true
  seccompProfile: Unconfined
  terminationGraceSeconds: 12
api: &api
  service: {name: provisioner, port: 80, type: LoadBalancer, annotations: {example.com/lb: internal}}
  shutdownDelaySeconds: 3
  shutdownSeconds: 20
  extraEnv: [{name: CREATE_WAIT, value: 12s}]
  podAnnotations: {example.com/a: b}
  podLabels: {example.com/c: d}
  nodeSelector: {kubernetes.io/os: linux}
  tolerations: [{key: agents, operator: Exists}]
  affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: gpu, operator: DoesNotExist}]}}]}}
  priorityClassName: system-cluster-critical
worker:
  concurrency: 32
  drainSeconds: 6
  extraEnv: [{name: SWEEP_INTERVAL, value: 1m}]
  nodeSelector: {kubernetes.io/os: linux}
  tolerations: [{key: agents, operator: Exists}]
  priorityClassName: system-cluster-critical
extraEnv:
  - {name: HTTPS_PROXY, value: "http://proxy.example.com:3128"}
  - {name: NO_PROXY, value: ".svc,.svc.example.local"}
  - {name: JOB_RETENTION, value: 2h}
logLevel: debug
logFormat: text
clusterName: east
serviceAccount: {annotations: {example.com/role: provisioner}}
topologySpread: DoNotSchedule
nats:
  replicas: 3
  image: registry.example.com/nats:2
  auth: {token: golden-token-0123}
  storage: {size: 10Gi, className: fast}
  nodeSelector: {kubernetes.io/os: linux}
networkPolicy:
  sandbox:
    gatewayPodLabels: {app: gateway}
    gatewayNamespaces: [front, back]
    nodePortFrom: [203.0.113.0/24]
    probesFrom: [192.0.2.0/24]
    extraFrom: [{podSelector: {matchLabels: {app: debugger}}}]
    dnsAddresses: [169.254.20.10/32]
    internetExceptExtra: [198.51.100.7/32, "2001:db8::/32"]
    extraTo: [{ipBlock: {cidr: 10.1.2.3/32}}]
  nats: {monitoringNamespaces: [keda, monitoring]}
autoscaling: {api: {enabled: true, minReplicas: 3, maxReplicas: 9, targetCPUPercent: 50}}
keda: {enabled: true, minReplicas: 1, maxReplicas: 8, lagThreshold: 20, pollingInterval: 5}
serviceMonitor: {enabled: true, interval: 15s, labels: {release: prometheus}}
prometheusRule: {enabled: true, labels: {release: prometheus}}
dashboards: {enabled: true, annotations: {k8s-sidecar-target-directory: agents}}
`,
}

// eachScenario runs a subtest for each way to install the chart.
func eachScenario(t *testing.T, test func(t *testing.T, name string, r rendering)) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(scenarios)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, name, render(t, scenarios[name]))
		})
	}
}
