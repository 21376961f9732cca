{{/* Configuration of the built-in NATS. What differs from Pod to Pod comes from its environment. */}}
{{- define "sp.natsConfig" -}}
server_name: $POD_NAME
port: 4222
http_port: 8222
jetstream {
  store_dir: /data
  # A job is on the disk before it is acknowledged.
  sync_interval: always
  # All streams are files.
  max_memory_store: 16MB
}
{{- if .Values.nats.auth.enabled }}
authorization {
  token: $NATS_TOKEN_QUOTED
}
{{- end }}
{{- if gt (int .Values.nats.replicas) 1 }}
cluster {
  name: {{ include "sp.fullname" . }}
  port: 6222
  {{- if .Values.nats.auth.enabled }}
  authorization {
    user: route
    password: $NATS_TOKEN_QUOTED
  }
  {{- end }}
}
{{- end }}
{{- end -}}
