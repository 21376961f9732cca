package config

// A variable is what must hold for one environment variable.
type variable struct {
	// absent is the effective value when the variable is not set.
	absent string
	// empty is the line of the error when it is set but empty. No line: it is the empty string.
	empty string
	// good values, with the effective values that they become.
	good map[string]string
	// bad values, with the lines of the errors.
	bad map[string]string
	// with are other variables that it needs.
	with map[string]string
}

const (
	badDuration = "must be a duration, such as 500ms, 10s or 1h"
	badGC       = "must be off or a whole number above 0, such as 100"
	badNumber   = "must be a whole number"
	badBool     = "must be true or false"
	badListen   = "must be host:port or :port, with a port of 1 to 65535"
	badServers  = "must be nats://host:port, or several separated by commas"
	badCluster  = "must be 1 to 64 letters, digits, - and _"
)

// variables are all that any of the programs knows.
var variables = map[string]variable{
	"LISTEN_ADDR": {
		absent: "0.0.0.0:8002",
		empty:  `LISTEN_ADDR="": ` + badListen,
		good:   map[string]string{":80": ":80", "[::1]:8002": "[::1]:8002", "localhost:65535": "localhost:65535"},
		bad: map[string]string{
			"8002":          `LISTEN_ADDR="8002": ` + badListen,
			"0.0.0.0:0":     `LISTEN_ADDR="0.0.0.0:0": ` + badListen,
			"0.0.0.0:65536": `LISTEN_ADDR="0.0.0.0:65536": ` + badListen,
			"::1:8002":      `LISTEN_ADDR="::1:8002": ` + badListen,
		},
	},
	"PROVISIONER_API_KEY": {
		good: map[string]string{"k$y": masked, " with spaces ": masked},
	},
	"CREATE_WAIT": {
		absent: "10s",
		empty:  `CREATE_WAIT="": set but empty; ` + badDuration,
		good:   map[string]string{"0": "0s", "25s": "25s", "1500ms": "1.5s"},
		bad: map[string]string{
			"-1s":     "CREATE_WAIT=-1s: must be 0s to 25s; clients give up after 30s",
			"25001ms": "CREATE_WAIT=25.001s: must be 0s to 25s; clients give up after 30s",
			"10":      `CREATE_WAIT="10": ` + badDuration,
		},
	},
	"DELETE_WAIT": {
		absent: "12s",
		empty:  `DELETE_WAIT="": set but empty; ` + badDuration,
		good:   map[string]string{"12s": "12s", "1ms": "1ms"},
		bad: map[string]string{
			"0s":   "DELETE_WAIT=0s: must be above 0s, up to 12s; clients give up after 15s",
			"13s":  "DELETE_WAIT=13s: must be above 0s, up to 12s; clients give up after 15s",
			"soon": `DELETE_WAIT="soon": ` + badDuration,
		},
	},
	"READ_WAIT": {
		absent: "7s",
		empty:  `READ_WAIT="": set but empty; ` + badDuration,
		good:   map[string]string{"7s": "7s", "1ms": "1ms"},
		bad: map[string]string{
			"0s":  "READ_WAIT=0s: must be above 0s, up to 7s; clients give up after 10s",
			"8s":  "READ_WAIT=8s: must be above 0s, up to 7s; clients give up after 10s",
			"7 s": `READ_WAIT="7 s": ` + badDuration,
		},
	},
	"PROVISIONER_API_KEYS": {
		good: map[string]string{"a:s3cret": masked, "a:s3cret1, b:s3cret2": masked, " ": ""},
		bad: map[string]string{
			"s3cret":             `PROVISIONER_API_KEYS="******": entry 1 is not name:key; must be name:key, or several separated by commas`,
			"a:s3cret1,a:s3cret": `PROVISIONER_API_KEYS="******": entries 1 and 2 have the same name`,
		},
	},
	"RATE_LIMIT_RPS": {
		absent: "0",
		empty:  `RATE_LIMIT_RPS="": set but empty; must be a number`,
		good:   map[string]string{"0.5": "0.5", "1e3": "1000"},
		bad: map[string]string{
			"-1":   "RATE_LIMIT_RPS=-1: must be 0 or more",
			"NaN":  "RATE_LIMIT_RPS=NaN: must be 0 or more",
			"+Inf": "RATE_LIMIT_RPS=+Inf: must be 0 or more",
			"1/s":  `RATE_LIMIT_RPS="1/s": must be a number`,
		},
	},
	"RATE_LIMIT_BURST": {
		absent: "0",
		empty:  `RATE_LIMIT_BURST="": set but empty; ` + badNumber,
		good:   map[string]string{"20": "20"},
		bad:    map[string]string{"-1": "RATE_LIMIT_BURST=-1: must be 0 or more", "1.5": `RATE_LIMIT_BURST="1.5": ` + badNumber},
	},
	"TRUSTED_PROXIES": {
		good: map[string]string{"10.0.0.0/8, ::1 ,": "10.0.0.0/8,::1"},
		bad: map[string]string{
			"10.0.0.0/33": `TRUSTED_PROXIES="10.0.0.0/33": must be addresses or networks such as 10.0.0.1 or 10.0.0.0/8, separated by commas`,
			"proxy":       `TRUSTED_PROXIES="proxy": must be addresses or networks such as 10.0.0.1 or 10.0.0.0/8, separated by commas`,
		},
	},
	"SHUTDOWN_DELAY": {
		absent: "0s",
		empty:  `SHUTDOWN_DELAY="": set but empty; ` + badDuration,
		good:   map[string]string{"0s": "0s", "5s": "5s"},
		bad:    map[string]string{"-1s": "SHUTDOWN_DELAY=-1s: must be 0s or more"},
	},
	"SHUTDOWN_WAIT": {
		absent: "10s",
		empty:  `SHUTDOWN_WAIT="": set but empty; ` + badDuration,
		good:   map[string]string{"0s": "0s", "1m": "1m0s"},
		bad:    map[string]string{"-1s": "SHUTDOWN_WAIT=-1s: must be 0s or more"},
	},
	"WORKER_CONCURRENCY": {
		absent: "64",
		empty:  `WORKER_CONCURRENCY="": set but empty; ` + badNumber,
		good:   map[string]string{"1": "1", "1000": "1000", "010": "10"},
		bad: map[string]string{
			"0":    "WORKER_CONCURRENCY=0: must be 1 to 1000",
			"1001": "WORKER_CONCURRENCY=1001: must be 1 to 1000",
			"0x10": `WORKER_CONCURRENCY="0x10": ` + badNumber,
			"1.5":  `WORKER_CONCURRENCY="1.5": ` + badNumber,
		},
	},
	"DRAIN_WAIT": {
		absent: "8s",
		empty:  `DRAIN_WAIT="": set but empty; ` + badDuration,
		good:   map[string]string{"0s": "0s", "9s": "9s"},
		bad: map[string]string{
			"-1s": "DRAIN_WAIT=-1s: must be 0s to 9s",
			"10s": "DRAIN_WAIT=10s: must be 0s to 9s",
		},
	},
	"SWEEP_INTERVAL": {
		absent: "5m0s",
		empty:  `SWEEP_INTERVAL="": set but empty; ` + badDuration,
		good:   map[string]string{"0": "0s", "1h": "1h0m0s"},
		bad:    map[string]string{"-1s": "SWEEP_INTERVAL=-1s: must be 0s or more", "5": `SWEEP_INTERVAL="5": ` + badDuration},
	},
	"ORPHAN_GRACE": {
		absent: "15m0s",
		empty:  `ORPHAN_GRACE="": set but empty; ` + badDuration,
		good:   map[string]string{"0": "0s", "1h": "1h0m0s"},
		bad:    map[string]string{"-1s": "ORPHAN_GRACE=-1s: must be 0s or more", "long": `ORPHAN_GRACE="long": ` + badDuration},
	},
	"RETRY_MAX": {
		absent: "30s",
		empty:  `RETRY_MAX="": set but empty; ` + badDuration,
		good:   map[string]string{"1s": "1s"},
		bad:    map[string]string{"0s": "RETRY_MAX=0s: must be above 0s"},
	},
	"NATS_URL": {
		absent: "nats://127.0.0.1:4222",
		empty:  `NATS_URL="": a server is missing; ` + badServers,
		good: map[string]string{
			"nats://nats":                       "nats://nats",
			"tls://a:4222, wss://b:443":         "tls://a:4222, wss://b:443",
			"nats://[::1]:4222":                 "nats://[::1]:4222",
			"nats://me:s3cret@a,ws://token@b:1": "nats://******@a,ws://******@b:1",
		},
		bad: map[string]string{
			"nats:4222":                `NATS_URL="nats:4222": no host; ` + badServers,
			"127.0.0.1:4222":           `NATS_URL="127.0.0.1:4222": not a URL; ` + badServers,
			"http://a":                 `NATS_URL="http://a": the scheme is not nats, tls, ws or wss; ` + badServers,
			"nats://:4222":             `NATS_URL="nats://:4222": no host; ` + badServers,
			"nats://a:0":               `NATS_URL="nats://a:0": the port is not 1 to 65535; ` + badServers,
			"nats://a,":                `NATS_URL="nats://a,": a server is missing; ` + badServers,
			"nats://u:s3cret@a:b":      `NATS_URL="nats://******@a:b": not a URL; ` + badServers,
			"u:s3cret@a":               `NATS_URL="******@a": the scheme is not nats, tls, ws or wss; ` + badServers,
			"nats://u:s3@cret@a:99999": `NATS_URL="nats://******@a:99999": the port is not 1 to 65535; ` + badServers,
		},
	},
	"NATS_CREDS": {
		good: map[string]string{"/etc/nats/user.creds": "/etc/nats/user.creds"},
	},
	"NATS_USER": {
		good: map[string]string{"me": "me"},
	},
	"NATS_PASSWORD": {
		good: map[string]string{"s3cret": masked},
		with: map[string]string{"NATS_USER": "me"},
	},
	"NATS_TOKEN": {
		good: map[string]string{"s3cret": masked},
	},
	"DATA_DIR": {
		absent: "/var/lib/sandbox-provisioner",
		empty:  `DATA_DIR="": set but empty; must be a directory`,
		good:   map[string]string{"data": "data", "/a $HOME": "/a $HOME"},
	},
	"NATS_SYNC_INTERVAL": {
		absent: "always",
		empty:  `NATS_SYNC_INTERVAL="": set but empty; must be always or a duration above 0, such as 10s`,
		good:   map[string]string{"always": "always", "2m": "2m0s"},
		bad: map[string]string{
			"0s":    `NATS_SYNC_INTERVAL="0s": must be always or a duration above 0, such as 10s`,
			"never": `NATS_SYNC_INTERVAL="never": must be always or a duration above 0, such as 10s`,
		},
	},
	"CLUSTER_NAME": {
		absent: "default",
		empty:  `CLUSTER_NAME="": ` + badCluster,
		good:   map[string]string{"Prod_eu-1": "Prod_eu-1", sixtyFour: sixtyFour},
		bad: map[string]string{
			"a.b":           `CLUSTER_NAME="a.b": ` + badCluster,
			">":             `CLUSTER_NAME=">": ` + badCluster,
			"a\n":           `CLUSTER_NAME="a\n": ` + badCluster,
			sixtyFour + "x": `CLUSTER_NAME="` + sixtyFour + `x": ` + badCluster,
		},
	},
	"NATS_STREAM_REPLICAS": {
		absent: "1",
		empty:  `NATS_STREAM_REPLICAS="": set but empty; ` + badNumber,
		good:   map[string]string{"1": "1"},
		bad: map[string]string{
			"0": "NATS_STREAM_REPLICAS=0: must be 1, 3 or 5",
			"2": "NATS_STREAM_REPLICAS=2: must be 1, 3 or 5",
			"3": "NATS_STREAM_REPLICAS=3: must be 1; the embedded NATS is a single server",
			"7": "NATS_STREAM_REPLICAS=7: must be 1, 3 or 5",
		},
	},
	"JOB_RETENTION": {
		absent: "1h0m0s",
		empty:  `JOB_RETENTION="": set but empty; ` + badDuration,
		good:   map[string]string{"20m": "20m0s", "24h": "24h0m0s"},
		bad:    map[string]string{"19m59s": "JOB_RETENTION=19m59s: must be 20m or more"},
	},
	"GOMAXPROCS": {
		absent: "1",
		empty:  `GOMAXPROCS="": set but empty; ` + badNumber,
		good:   map[string]string{"4": "4"},
		bad: map[string]string{
			"0":   "GOMAXPROCS=0: must be 1 or more",
			"-1":  "GOMAXPROCS=-1: must be 1 or more",
			"all": `GOMAXPROCS="all": ` + badNumber,
		},
	},
	"GOGC": {
		absent: "400",
		empty:  `GOGC="": set but empty; ` + badGC,
		good:   map[string]string{"100": "100", "off": "off"},
		bad:    map[string]string{"0": `GOGC="0": ` + badGC, "-1": `GOGC="-1": ` + badGC, "50%": `GOGC="50%": ` + badGC},
	},
	"ACK_WAIT": {
		absent: "15s",
		empty:  `ACK_WAIT="": set but empty; ` + badDuration,
		good:   map[string]string{"2s": "2s"},
		bad:    map[string]string{"1999ms": "ACK_WAIT=1.999s: must be 2s or more"},
	},
	"CREATE_DEADLINE": {
		absent: "15m0s",
		empty:  `CREATE_DEADLINE="": set but empty; ` + badDuration,
		good:   map[string]string{"1s": "1s", "59m": "59m0s"},
		bad: map[string]string{
			"0s": "CREATE_DEADLINE=0s: must be above 0s",
			"1h": "JOB_RETENTION=1h0m0s: must be longer than CREATE_DEADLINE, which is 1h0m0s; a job must be finished before it is forgotten",
		},
	},
	"NATS_TIMEOUT": {
		absent: "1.5s",
		empty:  `NATS_TIMEOUT="": set but empty; ` + badDuration,
		good:   map[string]string{"3s": "3s"},
		bad:    map[string]string{"0s": "NATS_TIMEOUT=0s: must be above 0s"},
	},
	"KUBECONFIG_PATH": {
		absent: "/root/.kube/config",
		good:   map[string]string{"~/$X": "~/$X"},
	},
	"KUBECONFIG_WAIT": {
		absent: "30s",
		empty:  `KUBECONFIG_WAIT="": set but empty; ` + badDuration,
		good:   map[string]string{"0s": "0s"},
		bad:    map[string]string{"-1s": "KUBECONFIG_WAIT=…"},
	},
	"K8S_API_SERVER": {
		good: map[string]string{
			"https://host.docker.internal:6443": "https://host.docker.internal:6443",
			"http://u:s3cret@h":                 "http://******@h",
		},
		bad: map[string]string{
			"https://":        "K8S_API_SERVER…",
			"http://h:s3cret": "K8S_API_SERVER…",
			"notaurl":         "K8S_API_SERVER…",
		},
	},
	"K8S_TLS_VERIFY": {
		absent: "false",
		empty:  `K8S_TLS_VERIFY="": set but empty; ` + badBool,
		good:   map[string]string{"1": "true", "TRUE": "true", "f": "false"},
		bad:    map[string]string{"yes": `K8S_TLS_VERIFY="yes": ` + badBool},
	},
	"K8S_QPS": {
		absent: "-1",
		empty:  `K8S_QPS="": set but empty; must be a number`,
		good:   map[string]string{"0.5": "0.5", "200": "200"},
		bad: map[string]string{
			"0":   "K8S_QPS=0: must be -1 or above 0",
			"-2":  "K8S_QPS=-2: must be -1 or above 0",
			"NaN": "K8S_QPS=NaN: must be -1 or above 0",
			"inf": "K8S_QPS=+Inf: must be -1 or above 0",
			"1/s": `K8S_QPS="1/s": must be a number`,
		},
	},
	"K8S_REQUEST_TIMEOUT": {
		absent: "5s",
		empty:  `K8S_REQUEST_TIMEOUT="": set but empty; ` + badDuration,
		good:   map[string]string{"30s": "30s"},
		bad:    map[string]string{"0s": "K8S_REQUEST_TIMEOUT=…"},
	},
	"K8S_NAMESPACE": {
		absent: "deer-flow",
		empty:  "K8S_NAMESPACE=…",
		good:   map[string]string{"sandboxes": "sandboxes"},
		bad:    map[string]string{"Foo_": "K8S_NAMESPACE=…"},
	},
	"SANDBOX_IMAGE": {
		absent: "enterprise-public-cn-beijing.cr.volces.com/vefaas-public/all-in-one-sandbox:latest",
		empty:  "SANDBOX_IMAGE=…",
		good:   map[string]string{"sandbox:1": "sandbox:1"},
	},
	"SANDBOX_CONTAINER_PORT": {
		absent: "8080",
		empty:  `SANDBOX_CONTAINER_PORT="": set but empty; ` + badNumber,
		good:   map[string]string{"1": "1", "65535": "65535"},
		bad: map[string]string{
			"0":          "SANDBOX_CONTAINER_PORT=…",
			"-1":         "SANDBOX_CONTAINER_PORT=…",
			"65536":      "SANDBOX_CONTAINER_PORT=…",
			"http":       `SANDBOX_CONTAINER_PORT="http": ` + badNumber,
			"4294975376": `SANDBOX_CONTAINER_PORT="4294975376": ` + badNumber,
		},
	},
	"SANDBOX_SERVICE_TYPE": {
		absent: "NodePort",
		empty:  "SANDBOX_SERVICE_TYPE=…",
		good:   map[string]string{"ClusterIP": "ClusterIP", "NodePort": "NodePort"},
		bad:    map[string]string{"LoadBalancer": "SANDBOX_SERVICE_TYPE=…", "clusterip": "SANDBOX_SERVICE_TYPE=…"},
	},
	"NODE_HOST": {
		absent: "host.docker.internal",
		empty:  "NODE_HOST=…",
		good:   map[string]string{"10.0.0.1": "10.0.0.1"},
	},
	"CLUSTER_DOMAIN": {
		absent: "cluster.local",
		empty:  "CLUSTER_DOMAIN=…",
		good:   map[string]string{"k8s.example": "k8s.example"},
		with:   map[string]string{"SANDBOX_SERVICE_TYPE": "ClusterIP"},
	},
	"SANDBOX_SECCOMP_PROFILE": {
		absent: "RuntimeDefault",
		empty:  "SANDBOX_SECCOMP_PROFILE=…",
		good:   map[string]string{"Unconfined": "Unconfined"},
		bad:    map[string]string{"Localhost": "SANDBOX_SECCOMP_PROFILE=…"},
	},
	"SANDBOX_TERMINATION_GRACE_PERIOD": {
		absent: "5s",
		empty:  `SANDBOX_TERMINATION_GRACE_PERIOD="": set but empty; ` + badDuration,
		good:   map[string]string{"30s": "30s"},
		bad: map[string]string{
			"-1s":   "SANDBOX_TERMINATION_GRACE_PERIOD=…",
			"500ms": "SANDBOX_TERMINATION_GRACE_PERIOD=…",
		},
	},
	"SKILLS_PVC_SUBPATH_TEMPLATE": {
		good: map[string]string{"u/{user_id}/{{x}}/{thread_id}": "u/{user_id}/{{x}}/{thread_id}"},
		bad:  map[string]string{"{user}": "SKILLS_PVC_SUBPATH_TEMPLATE=…"},
		with: map[string]string{"SKILLS_PVC_NAME": "skills"},
	},
	"DEER_FLOW_HOST_BASE_DIR": {
		absent: "/.deer-flow",
		good:   map[string]string{`C:\deer-flow`: `C:\deer-flow`},
		bad:    map[string]string{"deer-flow": "DEER_FLOW_HOST_BASE_DIR=…"},
	},
	"THREADS_HOST_PATH": {
		absent: "/.deer-flow/threads",
		empty:  "THREADS_HOST_PATH=…",
		good:   map[string]string{"/data/threads": "/data/threads"},
		bad:    map[string]string{"threads": "THREADS_HOST_PATH=…"},
	},
	"SKILLS_PVC_NAME":                       {good: map[string]string{"skills": "skills"}},
	"USERDATA_PVC_NAME":                     {good: map[string]string{"data": "data"}},
	"LARK_CLI_INIT_IMAGE":                   {good: map[string]string{"lark:1": "lark:1"}},
	"LARK_CLI_BROKER_IMAGE":                 {good: map[string]string{"broker@sha256:0": "broker@sha256:0"}},
	"DEERFLOW_LARK_BROKER_DENY_SUBCOMMANDS": {good: map[string]string{"a,b": "a,b"}},
	"SANDBOX_ALLOW_PRIVILEGE_ESCALATION": {
		absent: "true",
		empty:  `SANDBOX_ALLOW_PRIVILEGE_ESCALATION="": set but empty; ` + badBool,
		good:   map[string]string{"false": "false"},
		bad:    map[string]string{"no": `SANDBOX_ALLOW_PRIVILEGE_ESCALATION="no": ` + badBool},
	},
	"SANDBOX_AUTOMOUNT_SERVICE_ACCOUNT_TOKEN": {
		absent: "false",
		empty:  `SANDBOX_AUTOMOUNT_SERVICE_ACCOUNT_TOKEN="": set but empty; ` + badBool,
		good:   map[string]string{"true": "true"},
		bad:    map[string]string{"on": `SANDBOX_AUTOMOUNT_SERVICE_ACCOUNT_TOKEN="on": ` + badBool},
	},
	"SANDBOX_ENABLE_SERVICE_LINKS": {
		absent: "false",
		empty:  `SANDBOX_ENABLE_SERVICE_LINKS="": set but empty; ` + badBool,
		good:   map[string]string{"true": "true"},
		bad:    map[string]string{"2": `SANDBOX_ENABLE_SERVICE_LINKS="2": ` + badBool},
	},
	"LOG_LEVEL": {
		absent: "info",
		empty:  `LOG_LEVEL="": set but empty; must be debug, info, warn or error`,
		good:   map[string]string{"debug": "debug", "WARN": "warn", "Error": "error"},
		bad:    map[string]string{"trace": `LOG_LEVEL="trace": must be debug, info, warn or error`},
	},
	"LOG_FORMAT": {
		absent: "json",
		empty:  `LOG_FORMAT="": set but empty; must be json or text`,
		good:   map[string]string{"text": "text", "JSON": "json"},
		bad:    map[string]string{"logfmt": `LOG_FORMAT="logfmt": must be json or text`},
	},
	"OTEL_EXPORTER_OTLP_ENDPOINT": {
		good: map[string]string{"http://u:s3cret@collector:4318": "http://******@collector:4318"},
		bad: map[string]string{
			"collector:4318":         "OTEL_EXPORTER_OTLP_ENDPOINT: must be a URL such as http://collector:4318",
			"grpc://collector:4317":  "OTEL_EXPORTER_OTLP_ENDPOINT: must be a URL such as http://collector:4318",
			"http://u:s3cret@:x/y z": "OTEL_EXPORTER_OTLP_ENDPOINT: must be a URL such as http://collector:4318",
		},
	},
	"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": {
		good: map[string]string{"https://collector/v1/traces": "https://collector/v1/traces"},
		bad:  map[string]string{"/v1/traces": "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: must be a URL such as http://collector:4318"},
	},
	"OTEL_TRACES_EXPORTER": {
		good: map[string]string{"otlp": "otlp", "none": "none"},
		bad:  map[string]string{"zipkin": `OTEL_TRACES_EXPORTER="zipkin": must be otlp or none`},
	},
	"OTEL_EXPORTER_OTLP_PROTOCOL": {
		absent: "http/protobuf",
		good:   map[string]string{"http/protobuf": "http/protobuf"},
		bad:    map[string]string{"grpc": `OTEL_EXPORTER_OTLP_PROTOCOL="grpc": must be http/protobuf`},
	},
	"OTEL_EXPORTER_OTLP_HEADERS": {
		good: map[string]string{"a=s3cret": masked, "a=s3cret%201,b=2": masked},
		bad:  map[string]string{"s3cret": "OTEL_EXPORTER_OTLP_HEADERS: must be name=value, or several separated by commas"},
	},
	"OTEL_EXPORTER_OTLP_CERTIFICATE": {
		good: map[string]string{"/etc/ca.crt": "/etc/ca.crt"},
	},
	"OTEL_EXPORTER_OTLP_TIMEOUT": {
		absent: "10000",
		empty:  `OTEL_EXPORTER_OTLP_TIMEOUT="": set but empty; ` + badNumber,
		good:   map[string]string{"500": "500"},
		bad:    map[string]string{"0": "OTEL_EXPORTER_OTLP_TIMEOUT=0: must be above 0", "10s": `OTEL_EXPORTER_OTLP_TIMEOUT="10s": ` + badNumber},
	},
	"OTEL_SDK_DISABLED": {
		good: map[string]string{"true": "true"},
	},
	"METRICS_ADDR": {
		absent: ":9090",
		good:   map[string]string{"127.0.0.1:1": "127.0.0.1:1"},
		bad:    map[string]string{"9090": `METRICS_ADDR="9090": ` + badListen + ", or empty"},
	},
	"PPROF_ADDR": {
		good: map[string]string{":6060": ":6060", "127.0.0.1:1": "127.0.0.1:1"},
		bad:  map[string]string{"6060": `PPROF_ADDR="6060": ` + badListen + ", or empty"},
	},
}

const sixtyFour = "0123456789012345678901234567890123456789012345678901234567890123"
