{{- define "alicloud-ccm.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "alicloud-ccm.fullname" -}}
{{- $name := include "alicloud-ccm.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "alicloud-ccm.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "alicloud-ccm.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is needed with serviceAccount.create = false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "alicloud-ccm.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ default $.Chart.AppVersion .tag }}{{ end -}}
{{- end -}}
{{- end -}}

{{- define "alicloud-ccm.selector" -}}
app.kubernetes.io/name: {{ include "alicloud-ccm.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "alicloud-ccm.labels" -}}
{{ include "alicloud-ccm.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* Where the server can be asked on its own host. */}}
{{- define "alicloud-ccm.probeHost" -}}
{{- $address := .Values.server.address -}}
{{- if eq $address "0.0.0.0" -}}127.0.0.1
{{- else if eq $address "::" -}}::1
{{- else -}}{{ $address }}
{{- end -}}
{{- end -}}

{{/* Whether the service account takes a RAM role. */}}
{{- define "alicloud-ccm.rrsa" -}}
{{- with .Values.rrsa -}}
{{- if or .roleArn .oidcProviderArn -}}
{{- required "rrsa.roleArn is needed with rrsa.oidcProviderArn" .roleArn | len -}}
{{- required "rrsa.oidcProviderArn is needed with rrsa.roleArn" .oidcProviderArn | len -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The values that win over the file. Not as arguments, so that commands in the pod know them, too. */}}
{{- define "alicloud-ccm.env" -}}
- {name: ALICLOUD_CCM__CONTROLLERS, value: {{ toJson .Values.controllers | quote }}}
- {name: ALICLOUD_CCM__LEADER_ELECTION__NAMESPACE, value: {{ .Values.leaderElection.namespace | quote }}}
- {name: ALICLOUD_CCM__LEADER_ELECTION__NAME, value: {{ .Values.leaderElection.name | quote }}}
- {name: ALICLOUD_CCM__SERVER__ADDRESS, value: {{ .Values.server.address | quote }}}
- {name: ALICLOUD_CCM__SERVER__PORT, value: {{ int .Values.server.port | quote }}}
- {name: ALICLOUD_CCM__SERVER__AUTHORIZATION, value: "true"}
{{- if .Values.server.tlsSecret }}
- {name: ALICLOUD_CCM__SERVER__TLS_CERT_FILE, value: /etc/alicloud-ccm-tls/tls.crt}
- {name: ALICLOUD_CCM__SERVER__TLS_KEY_FILE, value: /etc/alicloud-ccm-tls/tls.key}
# The group of the pod, which the kubelet lets read the key, has no other members.
- {name: ALICLOUD_CCM__CLOUD__CREDENTIALS__ALLOW_READABLE_FILES, value: "true"}
{{- end }}
{{- if include "alicloud-ccm.rrsa" . }}
- {name: ALIBABA_CLOUD_ROLE_ARN, value: {{ .Values.rrsa.roleArn | quote }}}
- {name: ALIBABA_CLOUD_OIDC_PROVIDER_ARN, value: {{ .Values.rrsa.oidcProviderArn | quote }}}
- {name: ALIBABA_CLOUD_OIDC_TOKEN_FILE, value: /var/run/secrets/rrsa/token}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "alicloud-ccm.mounts" -}}
# Folders, never single files: only folders follow edits.
- {name: config, mountPath: /etc/alicloud-ccm, readOnly: true}
- {name: keys, mountPath: /etc/alicloud-ccm-keys, readOnly: true}
{{- if .Values.server.tlsSecret }}
- {name: tls, mountPath: /etc/alicloud-ccm-tls, readOnly: true}
{{- end }}
{{- if include "alicloud-ccm.rrsa" . }}
- {name: rrsa, mountPath: /var/run/secrets/rrsa, readOnly: true}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "alicloud-ccm.volumes" -}}
- name: config
  configMap: {name: {{ include "alicloud-ccm.fullname" . }}}
- name: keys
  secret:
    secretName: {{ .Values.credentialsSecret }}
    optional: true
    defaultMode: 256 # 0400
{{- if .Values.server.tlsSecret }}
- name: tls
  secret:
    secretName: {{ .Values.server.tlsSecret }}
    defaultMode: 256 # 0400
{{- end }}
{{- if include "alicloud-ccm.rrsa" . }}
- name: rrsa
  projected:
    sources:
      - serviceAccountToken: {path: token, audience: sts.aliyuncs.com, expirationSeconds: 3600}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "alicloud-ccm.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
# The kubelet lets this group read the keys, which belong to root.
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "alicloud-ccm.containerSecurity" -}}
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
{{- end -}}
