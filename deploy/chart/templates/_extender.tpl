{{- /* The extender's configuration: what the pod decides, under what the values say. The names of resources are the agent's. */ -}}
{{- define "nodeagent.extenderConfig" -}}
{{- $own := dict "listen" (printf ":%v" .Values.extender.port) "leader_election" (gt (int .Values.extender.replicas) 1) }}
{{- /* Names alone are sent below: twenty thousand of them take a quarter of it. */ -}}
{{- $_ := set $own "max_request_bytes" 4194304 }}
{{- if .Values.extender.tlsSecret }}
{{- $_ := set $own "web_config_file" "/etc/nodeagent/web.yaml" }}
{{- end }}
{{- toYaml (mergeOverwrite (dict "extender" $own) (deepCopy .Values.config)) }}
{{- end }}

{{- /* What kube-scheduler is told of it. */ -}}
{{- define "nodeagent.schedulerExtender" -}}
{{- $config := fromYaml (include "nodeagent.extenderConfig" .) }}
{{- $names := $config.fractions | default dict }}
{{- $secure := not (not .Values.extender.tlsSecret) }}
urlPrefix: {{ ternary "https" "http" $secure }}://nodeagent-extender.{{ .Release.Namespace }}.svc:{{ .Values.extender.port }}/scheduler
filterVerb: predicates
nodeCacheCapable: true
enableHTTPS: {{ $secure }}
{{- if $secure }}
# Where the scheduler sees who signed the extender's certificate.
tlsConfig:
  caFile: /etc/nodeagent-tls/ca.crt
{{- end }}
httpTimeout: 10s
# A pod that asks for parts of GPUs waits while no extender answers; pods that do not never ask it.
ignorable: false
managedResources:
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
