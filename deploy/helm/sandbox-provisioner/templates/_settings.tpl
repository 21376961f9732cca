{{/* Settings of both programs that are no secret. Each ignores those of the other. */}}
{{- define "sp.settings" -}}
# Empty: the ServiceAccount of the Pod, and no waiting for a file.
KUBECONFIG_PATH: ""
LISTEN_ADDR: 0.0.0.0:8002
METRICS_ADDR: :9090
LOG_LEVEL: {{ .Values.logLevel }}
LOG_FORMAT: {{ .Values.logFormat }}
CLUSTER_NAME: {{ .Values.clusterName | quote }}
NATS_URL: {{ include "sp.natsURL" . | quote }}
NATS_STREAM_REPLICAS: {{ .Values.nats.external.url | empty | ternary .Values.nats.replicas .Values.nats.external.streamReplicas | quote }}
SHUTDOWN_DELAY: {{ .Values.api.shutdownDelaySeconds }}s
SHUTDOWN_WAIT: {{ .Values.api.shutdownSeconds }}s
WORKER_CONCURRENCY: {{ .Values.worker.concurrency | quote }}
DRAIN_WAIT: {{ .Values.worker.drainSeconds }}s
{{- with .Values.sandbox }}
K8S_NAMESPACE: {{ .namespace | quote }}
SANDBOX_IMAGE: {{ .image | quote }}
SANDBOX_CONTAINER_PORT: {{ .port | quote }}
CLUSTER_DOMAIN: {{ .clusterDomain | quote }}
DEER_FLOW_HOST_BASE_DIR: {{ .hostBaseDir | quote }}
THREADS_HOST_PATH: {{ .threadsHostPath | quote }}
SKILLS_PVC_NAME: {{ .skillsClaim | quote }}
SKILLS_PVC_SUBPATH_TEMPLATE: {{ .skillsSubPathTemplate | quote }}
USERDATA_PVC_NAME: {{ .userDataClaim | quote }}
LARK_CLI_INIT_IMAGE: {{ .larkInitImage | quote }}
LARK_CLI_BROKER_IMAGE: {{ .larkBrokerImage | quote }}
DEERFLOW_LARK_BROKER_DENY_SUBCOMMANDS: {{ .larkDenySubcommands | quote }}
SANDBOX_ALLOW_PRIVILEGE_ESCALATION: {{ .allowPrivilegeEscalation | quote }}
SANDBOX_AUTOMOUNT_SERVICE_ACCOUNT_TOKEN: {{ .automountServiceAccountToken | quote }}
SANDBOX_ENABLE_SERVICE_LINKS: {{ .enableServiceLinks | quote }}
SANDBOX_SECCOMP_PROFILE: {{ .seccompProfile | quote }}
SANDBOX_TERMINATION_GRACE_PERIOD: {{ .terminationGraceSeconds }}s
{{- end }}
{{- end -}}
