{{- define "slipway.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "slipway.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "slipway.labels" -}}
{{ include "slipway.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "slipway.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The name of the ClusterRole and its binding, which no namespace keeps apart. */ -}}
{{- define "slipway.clusterName" -}}
{{- printf "%s-%s" .Release.Namespace (include "slipway.fullname" .) -}}
{{- end -}}

{{- define "slipway.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- /* The user of the image: Nix does not work as one that has no name there. */ -}}
{{- define "slipway.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- /* PostgreSQL and Temporal: what every command of slipway needs. */ -}}
{{- define "slipway.connections.env" -}}
- name: SLIPWAY_DATABASE_URL
  valueFrom:
    secretKeyRef:
      name: {{ .Values.database.existingSecret }}
      key: {{ .Values.database.key }}
{{- with .Values.temporal }}
- name: TEMPORAL_ADDRESS
  value: {{ .address | quote }}
- name: TEMPORAL_NAMESPACE
  value: {{ .namespace | quote }}
{{- if .apiKey.existingSecret }}
- name: SLIPWAY_TEMPORAL_API_KEY_FILE
  value: /etc/slipway/temporal-api-key/api-key
{{- end }}
{{- if or .tls.enabled .tls.caSecret .tls.clientSecret .tls.serverName .apiKey.existingSecret }}
- name: TEMPORAL_TLS
  value: "true"
{{- end }}
{{- with .tls.serverName }}
- name: TEMPORAL_TLS_SERVER_NAME
  value: {{ . | quote }}
{{- end }}
{{- if .tls.caSecret }}
- name: TEMPORAL_TLS_SERVER_CA_CERT_PATH
  value: /etc/slipway/temporal-ca/ca.crt
{{- end }}
{{- if .tls.clientSecret }}
- name: TEMPORAL_TLS_CLIENT_CERT_PATH
  value: /etc/slipway/temporal-client/tls.crt
- name: TEMPORAL_TLS_CLIENT_KEY_PATH
  value: /etc/slipway/temporal-client/tls.key
{{- end }}
{{- end }}
{{- end -}}

{{- define "slipway.connections.mounts" -}}
- name: tmp
  mountPath: /tmp
{{- if .Values.database.caSecret }}
- name: database-ca
  mountPath: /etc/slipway/database
  readOnly: true
{{- end }}
{{- if .Values.temporal.tls.caSecret }}
- name: temporal-ca
  mountPath: /etc/slipway/temporal-ca
  readOnly: true
{{- end }}
{{- if .Values.temporal.tls.clientSecret }}
- name: temporal-client
  mountPath: /etc/slipway/temporal-client
  readOnly: true
{{- end }}
{{- if .Values.temporal.apiKey.existingSecret }}
- name: temporal-api-key
  mountPath: /etc/slipway/temporal-api-key
  readOnly: true
{{- end }}
{{- end -}}

{{- define "slipway.connections.volumes" -}}
- name: tmp
  emptyDir: {}
{{- with .Values.database.caSecret }}
- name: database-ca
  secret:
    defaultMode: 0440
    secretName: {{ . }}
    items:
      - {key: ca.crt, path: ca.crt}
{{- end }}
{{- with .Values.temporal.tls.caSecret }}
- name: temporal-ca
  secret:
    defaultMode: 0440
    secretName: {{ . }}
    items:
      - {key: ca.crt, path: ca.crt}
{{- end }}
{{- with .Values.temporal.tls.clientSecret }}
- name: temporal-client
  secret:
    defaultMode: 0440
    secretName: {{ . }}
{{- end }}
{{- with .Values.temporal.apiKey }}
{{- if .existingSecret }}
- name: temporal-api-key
  secret:
    defaultMode: 0440
    secretName: {{ .existingSecret }}
    items:
      - {key: {{ .key }}, path: api-key}
{{- end }}
{{- end }}
{{- end -}}

{{- /* What API and worker have in common beyond that. */ -}}
{{- define "slipway.common.env" -}}
{{ include "slipway.connections.env" . }}
- name: SLIPWAY_LOG_LEVEL
  value: {{ .Values.logLevel | quote }}
- name: SLIPWAY_SHUTDOWN_TIMEOUT
  value: {{ .Values.shutdownTimeout | quote }}
{{- with .Values.temporal.codec }}
{{- if .existingSecret }}
- name: SLIPWAY_CODEC_KEYS_FILE
  value: /etc/slipway/codec/keys
{{- with .origins }}
- name: SLIPWAY_CODEC_ORIGINS
  value: {{ join "," . | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.corsOrigins }}
- name: SLIPWAY_CORS_ORIGINS
  value: {{ join "," . | quote }}
{{- end }}
{{- with .Values.openbao }}
{{- if .address }}
- name: OPENBAO_ADDR
  value: {{ .address | quote }}
- name: SLIPWAY_OPENBAO_MOUNT
  value: {{ .mount | quote }}
- name: SLIPWAY_OPENBAO_ROOT
  value: {{ .root | quote }}
{{- with .namespace }}
- name: SLIPWAY_OPENBAO_NAMESPACE
  value: {{ . | quote }}
{{- end }}
{{- if .caSecret }}
- name: SLIPWAY_OPENBAO_CA_FILE
  value: /etc/slipway/openbao-ca/ca.crt
{{- end }}
{{- if .kubernetesRole }}
- name: SLIPWAY_OPENBAO_KUBERNETES_ROLE
  value: {{ .kubernetesRole | quote }}
{{- else if .appRoleSecret }}
- name: SLIPWAY_OPENBAO_ROLE_ID_FILE
  value: /etc/slipway/openbao/role-id
- name: SLIPWAY_OPENBAO_SECRET_ID_FILE
  value: /etc/slipway/openbao/secret-id
{{- else }}
- name: OPENBAO_TOKEN_FILE
  value: /etc/slipway/openbao/token
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "slipway.common.mounts" -}}
{{ include "slipway.connections.mounts" . }}
{{- if .Values.temporal.codec.existingSecret }}
- name: codec
  mountPath: /etc/slipway/codec
  readOnly: true
{{- end }}
{{- with .Values.openbao }}
{{- if and .address .caSecret }}
- name: openbao-ca
  mountPath: /etc/slipway/openbao-ca
  readOnly: true
{{- end }}
{{- if and .address (or .appRoleSecret .tokenSecret) }}
- name: openbao
  mountPath: /etc/slipway/openbao
  readOnly: true
{{- end }}
{{- end }}
{{- end -}}

{{- define "slipway.common.volumes" -}}
{{ include "slipway.connections.volumes" . }}
{{- with .Values.temporal.codec }}
{{- if .existingSecret }}
- name: codec
  secret:
    defaultMode: 0440
    secretName: {{ .existingSecret }}
    items:
      - {key: {{ .key }}, path: keys}
{{- end }}
{{- end }}
{{- with .Values.openbao }}
{{- if and .address .caSecret }}
- name: openbao-ca
  secret:
    defaultMode: 0440
    secretName: {{ .caSecret }}
    items:
      - {key: ca.crt, path: ca.crt}
{{- end }}
{{- if and .address (or .appRoleSecret .tokenSecret) }}
- name: openbao
  secret:
    defaultMode: 0440
    secretName: {{ .appRoleSecret | default .tokenSecret }}
{{- end }}
{{- end }}
{{- end -}}

{{- /*
The pod's token where only OpenBao needs it: no more than the token. It is for
the audience of the cluster, as OpenBao's Kubernetes login expects; what it may do
there is nothing, since its ServiceAccount has no rights.
*/ -}}
{{- define "slipway.token.volume" -}}
- name: token
  projected:
    defaultMode: 0440
    sources:
      - serviceAccountToken:
          path: token
          expirationSeconds: 3600
{{- end -}}
{{- define "slipway.token.mount" -}}
- name: token
  mountPath: /var/run/secrets/kubernetes.io/serviceaccount
  readOnly: true
{{- end -}}

{{- /* What speaks on the port of the deployments API. */ -}}
{{- define "slipway.api.protocol" -}}
{{- ternary "https" "http" (not (empty .Values.api.tls.existingSecret)) -}}
{{- end -}}

{{- define "slipway.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 2
  failureThreshold: 30
livenessProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: health}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 3
{{- end -}}

{{- /* (root, values of the part, its name) */ -}}
{{- define "slipway.scheduling" -}}
{{- $part := index . 1 -}}
{{- with $part.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $part.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $part.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- if $part.affinity }}
affinity: {{- toYaml $part.affinity | nindent 2 }}
{{- else if eq $part.antiAffinity "required" }}
affinity:
  podAntiAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels: {{- include "slipway.selector" (index . 0) | nindent 12 }}
            app.kubernetes.io/component: {{ index . 2 }}
{{- else if eq $part.antiAffinity "preferred" }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels: {{- include "slipway.selector" (index . 0) | nindent 14 }}
              app.kubernetes.io/component: {{ index . 2 }}
{{- end }}
{{- end -}}

{{- /* The grace period of a pod: how long the process may take (a list of durations), and the kubelet's share. */ -}}
{{- define "slipway.grace" -}}
{{- $seconds := 10 -}}
{{- range . -}}
{{- if hasSuffix "m" . -}}
{{- $seconds = add $seconds (mul (trimSuffix "m" . | int) 60) -}}
{{- else -}}
{{- $seconds = add $seconds (trimSuffix "s" . | int) -}}
{{- end -}}
{{- end -}}
{{- $seconds -}}
{{- end -}}
