{{- /* The agent's configuration: what the pod decides, under what the values say. */ -}}
{{- define "nodeagent.config" -}}
{{- $pod := dict
  "http" (dict "listen" (printf ":%v" .Values.port))
  "kubelet" (dict "root_dir" .Values.kubeletRoot)
  "metrics" (dict "processes" .Values.hostPID)
  "node" (dict "host_root" "/host")
-}}
{{- if ne .Values.gpuAccess "privileged" }}
{{- $_ := set $pod "driver" (dict "manage_device_nodes" false) }}
{{- $_ := set $pod "health" (dict "watch_kernel_log" false) }}
{{- end }}
{{- if eq .Values.gpuAccess "none" }}
{{- $_ := set $pod "node" (dict "host_root" "/") }}
{{- end }}
{{- toYaml (mergeOverwrite $pod (deepCopy .Values.config)) }}
{{- end }}
