package helm

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func TestRefusesWrongValues(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, values, want string }{
		{"a misspelt value", "sandboxServicetype: NodePort", "additional properties 'sandboxServicetype' not allowed"},
		{"a misspelt value further down", "api: {replica: 3}", "additional properties 'replica' not allowed"},
		{"a type of Service that sandboxes cannot have", "sandboxServiceType: LoadBalancer", "at '/sandboxServiceType'"},
		{"a type in other letters", "sandboxServiceType: nodeport", "at '/sandboxServiceType'"},
		{"a type that is no word", "sandboxServiceType: true", "at '/sandboxServiceType'"},
		{"two NATS servers, which cannot agree", "nats: {replicas: 2}", "at '/nats/replicas'"},
		{"no NATS server", "nats: {replicas: 0}", "at '/nats/replicas'"},
		{"four copies", "nats: {external: {streamReplicas: 4}}", "at '/nats/external/streamReplicas'"},
		{"a password in the URL of NATS", "nats: {external: {url: 'nats://u:p@n:4222'}}", "at '/nats/external/url'"},
		{"a URL of NATS without a scheme", "nats: {external: {url: 'n:4222'}}", "at '/nats/external/url'"},
		{"an unknown way to authenticate", "nats: {external: {auth: nkey}}", "at '/nats/external/auth'"},
		{"a short token", "nats: {auth: {token: short}}", "at '/nats/auth/token'"},
		{"a token that would break a URL", "nats: {auth: {token: 'abcdefgh@0123456789'}}", "at '/nats/auth/token'"},
		{"a volume without a size", "nats: {storage: {size: big}}", "at '/nats/storage/size'"},
		{"a key with a space", "apiKey: {value: 'a b'}", "at '/apiKey/value'"},
		{"a key that is a number", "apiKey: {value: 12345}", "at '/apiKey/value'"},
		{"replicas as a word", "api: {replicas: two}", "at '/api/replicas'"},
		{"half a replica", "worker: {replicas: 1.5}", "at '/worker/replicas'"},
		{"a port beyond all ports", "sandbox: {port: 70000}", "at '/sandbox/port'"},
		{"a drain that is longer than the worker allows", "worker: {drainSeconds: 10}", "at '/worker/drainSeconds'"},
		{"no concurrency", "worker: {concurrency: 0}", "at '/worker/concurrency'"},
		{"a namespace that cannot be", "sandbox: {namespace: Deer_Flow}", "at '/sandbox/namespace'"},
		{"no namespace", "sandbox: {namespace: ''}", "at '/sandbox/namespace'"},
		{"an unknown seccomp profile", "sandbox: {seccompProfile: None}", "at '/sandbox/seccompProfile'"},
		{"an unknown log level", "logLevel: trace", "at '/logLevel'"},
		{"a cluster name with a dot", "clusterName: a.b", "at '/clusterName'"},
		{"a variable that has a value of its own", "extraEnv: [{name: SANDBOX_SERVICE_TYPE, value: NodePort}]", "at '/extraEnv/0/name'"},
		{"the host of nodes by the back door", "worker: {extraEnv: [{name: NODE_HOST, value: x}]}", "at '/worker/extraEnv/0/name'"},
		{"a variable that is a number", "extraEnv: [{name: A, value: 1}]", "at '/extraEnv/0/value'"},
		{"an address without a length", "networkPolicy: {sandbox: {probesFrom: [10.0.0.1]}}", "at '/networkPolicy/sandbox/probesFrom/0'"},
		{"an IPv6 address among IPv4 ones", "networkPolicy: {sandbox: {internetExceptIPv4: ['fc00::/7']}}", "internetExceptIPv4/0'"},
		{"a source that is everybody", "networkPolicy: {sandbox: {extraFrom: [{}]}}", "at '/networkPolicy/sandbox/extraFrom/0'"},
		{"KEDA that scales to zero", "keda: {minReplicas: 0}", "at '/keda/minReplicas'"},
		{"a section that is missing", "networkPolicy: null", "missing property 'networkPolicy'"},
		{"a value that is missing", "api: {replicas: null}", "missing property 'replicas'"},
		{"two that set the number of workers", "autoscaling: {worker: {enabled: true}}\nkeda: {enabled: true}", "exclude each other"},
		{"a missing ServiceAccount", "rbac: {create: false}\nserviceAccount: {api: a}", "serviceAccount.worker must name a ServiceAccount"},
		{"a missing Secret of NATS", "nats: {external: {url: 'nats://n', auth: token}}", "nats.external.existingSecret must name a Secret"},
		{"KEDA that cannot see NATS", "nats: {external: {url: 'nats://n'}}\nkeda: {enabled: true}", "keda needs nats.external.monitoringEndpoint"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := tryRender(t, loadChart(t), test.values)
			require.ErrorContains(t, err, test.want)
		})
	}
}

// A level is one object of values.schema.json.
type level struct {
	Description          string           `json:"description"`
	Properties           map[string]level `json:"properties"`
	AdditionalProperties any              `json:"additionalProperties"`
	Required             []string         `json:"required"`
}

// optional values may be missing: old values files know nothing of some, global is Helm's, and without resources there are none.
var optional = map[string]bool{"sandboxServiceType": true, "nodeHost": true, "global": true, "resources": true}

func TestEveryValueHasAMeaningADefaultAndASchema(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(filepath.Join(chartDir, "values.schema.json"))
	require.NoError(t, err)
	var root level
	require.NoError(t, json.Unmarshal(content, &root))
	content, err = os.ReadFile(filepath.Join(chartDir, "values.yaml"))
	require.NoError(t, err)
	var values yaml.Node
	require.NoError(t, yaml.Unmarshal(content, &values))
	compare(t, "", root, values.Content[0])
}

func compare(t *testing.T, path string, s level, node *yaml.Node) {
	t.Helper()
	require.NotEmpty(t, s.Description, "%s has no description in the schema", path)
	if s.Properties == nil || strings.HasSuffix(path, "/resources") {
		return // free, or Kubernetes' own
	}
	require.Equal(t, false, s.AdditionalProperties, "%s accepts anything", path)
	seen := map[string]bool{}
	for i := 0; i < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		below, known := s.Properties[key.Value]
		require.True(t, known, "%s/%s is not in the schema", path, key.Value)
		require.True(t, strings.HasPrefix(key.HeadComment, "# "), "%s/%s has no comment in values.yaml", path, key.Value)
		if !optional[key.Value] {
			require.Contains(t, s.Required, key.Value, path)
		}
		seen[key.Value] = true
		compare(t, path+"/"+key.Value, below, value)
	}
	for name := range s.Properties {
		require.True(t, seen[name] || name == "global", "%s/%s is not in values.yaml", path, name)
	}
}
