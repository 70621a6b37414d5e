{{- /* The extender's configuration: what the pod decides, under what the values say. The names of resources are the agent's. */ -}}
{{- define "nodeagent.extenderConfig" -}}
{{- $own := dict "listen" (printf ":%v" .Values.extender.port) "leader_election" (gt (int .Values.extender.replicas) 1) }}
{{- /* Names alone are sent below: twenty thousand of them take a quarter of it. */ -}}
{{- $_ := set $own "max_request_bytes" 4194304 }}
{{- $_ := set $own "probe_listen" (printf ":%v" .Values.extender.probePort) }}
{{- $_ := set $own "choice_keys_file" "/etc/nodeagent-choices/keys" }}
{{- if ne .Values.extender.tls.from "none" }}
{{- $_ := set $own "web_config_file" "/etc/nodeagent/web.yaml" }}
{{- end }}
{{- toYaml (mergeOverwrite (dict "extender" $own) (deepCopy .Values.config)) }}
{{- end }}

{{- /* The Secrets of the extender: names of the chart's own, or of those that are there already. */ -}}
{{- define "nodeagent.extenderServerSecret" -}}
{{- if eq .Values.extender.tls.from "existing" }}
{{- required "extender.tls.serverSecret: name the Secret with ca.crt, tls.crt and tls.key of the extender" .Values.extender.tls.serverSecret }}
{{- else }}nodeagent-extender-server{{ end }}
{{- end }}
{{- define "nodeagent.extenderClientSecret" -}}
{{- if eq .Values.extender.tls.from "existing" }}
{{- required "extender.tls.clientSecret: name the Secret with ca.crt, tls.crt and tls.key of kube-scheduler" .Values.extender.tls.clientSecret }}
{{- else }}nodeagent-extender-client{{ end }}
{{- end }}
{{- define "nodeagent.extenderKeysSecret" -}}
{{- .Values.extender.choiceKeysSecret | default "nodeagent-extender-choices" }}
{{- end }}

{{- /* What kube-scheduler is told of it. `tls` says how its certificate is given: the lines below tlsConfig. */ -}}
{{- define "nodeagent.schedulerExtender" -}}
{{- $config := fromYaml (include "nodeagent.extenderConfig" .root) }}
{{- $names := $config.fractions | default dict }}
{{- $service := printf "nodeagent-extender.%s.svc" .root.Release.Namespace }}
{{- $address := .root.Values.extender.clusterIP | default $service }}
{{- if contains ":" $address }}{{ $address = printf "[%s]" $address }}{{ end }}
{{- $secure := ne .root.Values.extender.tls.from "none" }}
urlPrefix: {{ ternary "https" "http" $secure }}://{{ $address }}:{{ .root.Values.extender.port }}/scheduler
filterVerb: predicates
nodeCacheCapable: true
enableHTTPS: {{ $secure }}
{{- if $secure }}
tlsConfig:
  # The name in the extender's certificate, whatever address it is asked at.
  serverName: {{ $service }}
  {{- toYaml .tls | nindent 2 }}
{{- end }}
httpTimeout: 10s
# A pod that asks for parts of GPUs waits while no extender answers; pods that do not never ask it.
ignorable: false
managedResources:
  {{- range $config.extender.classes }}
  - name: {{ . }}-core
    ignoredByScheduler: false
  - name: {{ . }}-memory
    ignoredByScheduler: false
  {{- end }}
  {{- range ($config.extender.profiles | default (list "tencent")) }}
  {{- if eq . "tencent" }}
  - name: {{ $names.core_resource | default "tencent.com/vcuda-core" }}
    ignoredByScheduler: false
  - name: {{ $names.memory_resource | default "tencent.com/vcuda-memory" }}
    ignoredByScheduler: false
  {{- else }}
  - name: {{ $names.share_resource | default "nvidia.com/gpu" }}
    ignoredByScheduler: false
  # No node offers these: they only say how large a share is.
  - name: nvidia.com/gpumem
    ignoredByScheduler: true
  - name: nvidia.com/gpumem-percentage
    ignoredByScheduler: true
  - name: nvidia.com/gpucores
    ignoredByScheduler: true
  {{- end }}
  {{- end }}
{{- end }}

{{- /* Where a kube-scheduler finds its certificate as files. */ -}}
{{- define "nodeagent.schedulerTlsFiles" -}}
caFile: /etc/nodeagent-tls/ca.crt
certFile: /etc/nodeagent-tls/tls.crt
keyFile: /etc/nodeagent-tls/tls.key
{{- end }}
{{- define "nodeagent.schedulerExtenderByFiles" -}}
{{- include "nodeagent.schedulerExtender" (dict "root" . "tls" (fromYaml (include "nodeagent.schedulerTlsFiles" .))) }}
{{- end }}
