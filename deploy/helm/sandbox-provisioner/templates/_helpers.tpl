{{/* The beginning of all names. 40 characters leave room for the longest suffix, and for what a StatefulSet appends. */}}
{{- define "sp.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What selects the Pods of a component: dict "root" $ "component" "api". It never changes, because selectors cannot. */}}
{{- define "sp.selector" -}}
app.kubernetes.io/name: {{ eq .component "nats" | ternary "nats" .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Labels of an object: dict "root" $ "component" "api". */}}
{{- define "sp.labels" -}}
{{ include "sp.selector" . }}
app.kubernetes.io/part-of: {{ .root.Chart.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "sp.image" -}}
{{- with .root.Values.image.registry }}{{ trimSuffix "/" . }}/{{ end -}}
sandbox-provisioner-{{ .component }}:{{ default .root.Chart.AppVersion .root.Values.image.tag }}
{{- end -}}

{{/* Only the word NodePort opens ports: empty, missing and null are ClusterIP. */}}
{{- define "sp.serviceType" -}}
{{- eq (toString .Values.sandboxServiceType) "NodePort" | ternary "NodePort" "ClusterIP" -}}
{{- end -}}

{{- define "sp.serviceAccount" -}}
{{- if .root.Values.rbac.create -}}
{{ include "sp.fullname" .root }}-{{ .component }}
{{- else -}}
{{ required (printf "serviceAccount.%s must name a ServiceAccount, since rbac.create is false" .component) (get .root.Values.serviceAccount .component) }}
{{- end -}}
{{- end -}}

{{- define "sp.apiService" -}}
{{ default (printf "%s-api" (include "sp.fullname" .)) .Values.api.service.name }}
{{- end -}}

{{- define "sp.keySecret" -}}
{{ default (include "sp.fullname" .) .Values.apiKey.existingSecret }}
{{- end -}}

{{- define "sp.keySecretKey" -}}
{{ .Values.apiKey.existingSecret | empty | ternary "PROVISIONER_API_KEY" .Values.apiKey.existingSecretKey }}
{{- end -}}

{{- define "sp.natsSecret" -}}
{{ default (printf "%s-nats" (include "sp.fullname" .)) .Values.nats.auth.existingSecret }}
{{- end -}}

{{- define "sp.natsURL" -}}
{{ default (printf "nats://%s-nats.%s.svc:4222" (include "sp.fullname" .) .Release.Namespace) .Values.nats.external.url }}
{{- end -}}

{{/* A secret that is generated once: dict "root" $ "name" of the Secret, "key" in it, "value" that was given, if any. */}}
{{- define "sp.secretValue" -}}
{{- $old := lookup "v1" "Secret" .root.Release.Namespace .name -}}
{{- if .value -}}
{{ .value | b64enc }}
{{- else if and $old (hasKey (default dict $old.data) .key) -}}
{{ index $old.data .key }}
{{- else -}}
{{ randAlphaNum 40 | b64enc }}
{{- end -}}
{{- end -}}

{{/* Environment of both programs that is no plain setting of the ConfigMap. */}}
{{- define "sp.env" -}}
- name: SANDBOX_SERVICE_TYPE
  value: {{ include "sp.serviceType" . }}
{{- if eq (include "sp.serviceType" .) "NodePort" }}
- name: NODE_HOST
  {{- if .Values.nodeHost }}
  value: {{ .Values.nodeHost | quote }}
  {{- else }}
  valueFrom:
    fieldRef:
      fieldPath: status.hostIP
  {{- end }}
{{- end }}
{{- if .Values.nats.external.url }}
{{- $secret := .Values.nats.external.existingSecret }}
{{- if .Values.nats.external.auth }}
{{- $secret = required "nats.external.existingSecret must name a Secret, since nats.external.auth is set" $secret }}
{{- end }}
{{- if eq .Values.nats.external.auth "token" }}
- name: NATS_TOKEN
  valueFrom: {secretKeyRef: {name: {{ $secret }}, key: token}}
{{- else if eq .Values.nats.external.auth "password" }}
- name: NATS_USER
  valueFrom: {secretKeyRef: {name: {{ $secret }}, key: user}}
- name: NATS_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ $secret }}, key: password}}
{{- else if eq .Values.nats.external.auth "creds" }}
- name: NATS_CREDS
  value: /etc/nats/nats.creds
{{- end }}
{{- else if .Values.nats.auth.enabled }}
- name: NATS_TOKEN
  valueFrom: {secretKeyRef: {name: {{ include "sp.natsSecret" . }}, key: token}}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The file with credentials of an external NATS. */}}
{{- define "sp.credsMounted" -}}
{{- if and .Values.nats.external.url (eq .Values.nats.external.auth "creds") }}true{{ end -}}
{{- end -}}

{{/* Restarts the Pods when a setting changes. Generated secrets do not, and others are not visible from here. */}}
{{- define "sp.checksums" -}}
checksum/config: {{ include "sp.settings" . | sha256sum }}
checksum/secrets: {{ printf "%s\n%s" .Values.apiKey.value .Values.nats.auth.token | sha256sum }}
{{- end -}}

{{/* Who may reach sandboxes. Defaults are here and not in values.yaml: labels there would be added to those that are given. */}}
{{- define "sp.gatewayLabels" -}}
{{- $default := dict "app.kubernetes.io/name" "deer-flow" "app.kubernetes.io/component" "gateway" -}}
{{ default $default .Values.networkPolicy.sandbox.gatewayPodLabels | toYaml }}
{{- end -}}

{{- define "sp.gatewayNamespaces" -}}
{{ default (list .Release.Namespace .Values.sandbox.namespace | uniq) .Values.networkPolicy.sandbox.gatewayNamespaces | toYaml }}
{{- end -}}

{{- define "sp.podSecurity" -}}
runAsNonRoot: true
runAsUser: 1000
runAsGroup: 1000
fsGroup: 1000
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "sp.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Pull secrets, and where Pods may run: dict "root" $ "component" "api". */}}
{{- define "sp.placement" -}}
{{- $of := get .root.Values .component -}}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.topologySpread }}
topologySpreadConstraints:
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: {{ $.root.Values.topologySpread }}
    labelSelector:
      matchLabels:
        {{- include "sp.selector" $ | nindent 8 }}
    {{- if ne $.component "nats" }}
    matchLabelKeys: [pod-template-hash]
    {{- end }}
  {{- end }}
{{- end }}
{{- with $of.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $of.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $of.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $of.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}
