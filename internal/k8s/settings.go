package k8s

import "time"

// Connection says how to reach the cluster.
type Connection struct {
	// KubeconfigPath is waited for, up to KubeconfigWait, before the in-cluster configuration is tried.
	KubeconfigPath string        `env:"KUBECONFIG_PATH, default=/root/.kube/config" help:"kubeconfig file; when it is missing, the in-cluster configuration"`
	KubeconfigWait time.Duration `env:"KUBECONFIG_WAIT, default=30s" help:"how long to wait for a missing kubeconfig outside a cluster"`
	// APIServer replaces the server of the kubeconfig, which inside a container often is an unreachable loopback address.
	APIServer string `env:"K8S_API_SERVER" secret:"userinfo" help:"replaces the server URL of the kubeconfig and turns TLS verification off"`
	// TLSVerify keeps verification on although APIServer is set.
	TLSVerify bool `env:"K8S_TLS_VERIFY, default=false" help:"keep TLS verification on although K8S_API_SERVER is set"`
	// QPS is client-go's own throttle. Its default of 5 would cap a worker at 2.5 sandboxes a second; the server's
	// Priority and Fairness is the better judge.
	QPS float32 `env:"K8S_QPS, default=-1" help:"client-side limit of requests per second to Kubernetes; -1 is none"`
	// RequestTimeout bounds one request, so that a hanging API server is an error and not a wait.
	RequestTimeout time.Duration `env:"K8S_REQUEST_TIMEOUT, default=5s" help:"limit of one request to Kubernetes"`
}

// A ServiceType is one of the two ways in which a sandbox can be reached.
type ServiceType string

// The two ServiceTypes.
const (
	NodePort  ServiceType = "NodePort"
	ClusterIP ServiceType = "ClusterIP"
)

// Settings decide what the Pods and Services look like.
type Settings struct {
	Namespace   string      `env:"K8S_NAMESPACE, default=deer-flow" help:"namespace of the sandboxes; created when missing"`
	Image       string      `env:"SANDBOX_IMAGE, default=enterprise-public-cn-beijing.cr.volces.com/vefaas-public/all-in-one-sandbox:latest" help:"image of the sandbox container"`
	Port        int32       `env:"SANDBOX_CONTAINER_PORT, default=8080" help:"port on which the sandbox container serves"`
	ServiceType ServiceType `env:"SANDBOX_SERVICE_TYPE, default=NodePort" help:"NodePort or ClusterIP"`
	// NodeHost is used in NodePort mode only.
	NodeHost string `env:"NODE_HOST, default=host.docker.internal" help:"host in sandbox URLs in NodePort mode"`
	// ClusterDomain is used in ClusterIP mode only.
	ClusterDomain string `env:"CLUSTER_DOMAIN, default=cluster.local" help:"DNS domain of the cluster, in sandbox URLs in ClusterIP mode"`

	// BaseDir is the root of DeerFlow's state on the nodes. Empty: derived from ThreadsPath.
	BaseDir     string `env:"DEER_FLOW_HOST_BASE_DIR, default=/.deer-flow" help:"DeerFlow state on the nodes; nothing outside is ever mounted"`
	ThreadsPath string `env:"THREADS_HOST_PATH, default=/.deer-flow/threads" help:"directory of the threads on the nodes"`

	SkillsPVC             string `env:"SKILLS_PVC_NAME" help:"claim that holds the skills, in place of host paths"`
	SkillsSubPathTemplate string `env:"SKILLS_PVC_SUBPATH_TEMPLATE" help:"subPath in the skills claim; may hold {user_id} and {thread_id}"`
	UserDataPVC           string `env:"USERDATA_PVC_NAME" help:"claim that holds user data, in place of host paths"`

	LarkInitImage       string `env:"LARK_CLI_INIT_IMAGE" help:"image that installs the Lark command line into the sandbox (pattern A)"`
	LarkBrokerImage     string `env:"LARK_CLI_BROKER_IMAGE" help:"image of the Lark credential broker (pattern B)"`
	LarkDenySubcommands string `env:"DEERFLOW_LARK_BROKER_DENY_SUBCOMMANDS" help:"subcommands that the Lark broker refuses"`

	// AllowPrivilegeEscalation is on because the stock image needs it.
	AllowPrivilegeEscalation bool `env:"SANDBOX_ALLOW_PRIVILEGE_ESCALATION, default=true" help:"allowPrivilegeEscalation of the sandbox container; the stock image needs it"`
	// AutomountServiceAccountToken is off: untrusted code must not hold a token.
	AutomountServiceAccountToken bool `env:"SANDBOX_AUTOMOUNT_SERVICE_ACCOUNT_TOKEN, default=false" help:"mount a service account token into sandboxes"`
	// EnableServiceLinks is off: thousands of Services would flood the environment of every Pod.
	EnableServiceLinks bool `env:"SANDBOX_ENABLE_SERVICE_LINKS, default=false" help:"put the addresses of all Services into the environment of sandboxes"`
	// SeccompProfile is RuntimeDefault or Unconfined.
	SeccompProfile string `env:"SANDBOX_SECCOMP_PROFILE, default=RuntimeDefault" help:"RuntimeDefault or Unconfined"`
	// TerminationGracePeriod is short because deleting and creating one id again at once is ordinary traffic.
	TerminationGracePeriod time.Duration `env:"SANDBOX_TERMINATION_GRACE_PERIOD, default=5s" help:"time that a sandbox gets to end by itself; whole seconds"`
}
