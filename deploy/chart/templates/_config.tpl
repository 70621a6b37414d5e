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
{{- if .Values.driver.enabled }}
{{- $_ := set $pod "driver" (merge (dict "root" "/run/nvidia/driver" "installed_by" "container") (get $pod "driver" | default dict)) }}
{{- end }}
{{- if eq .Values.gpuAccess "none" }}
{{- $_ := set $pod "node" (dict "host_root" "/") }}
{{- end }}
{{- if ((.Values.config).claims).enabled }}
{{- $_ := set $pod "claims" (dict "plugins_dir" (printf "%s/plugins" .Values.kubeletRoot) "registry_dir" (printf "%s/plugins_registry" .Values.kubeletRoot)) }}
{{- end }}
{{- with .Values.repairs.slots.domains }}
{{- $domains := list }}
{{- range . }}{{ $domains = append $domains (pick . "label" "slots") }}{{ end }}
{{- $_ := set $pod "repairs" (dict "slots" (dict "domains" $domains "namespace" $.Release.Namespace)) }}
{{- end }}
{{- toYaml (mergeOverwrite $pod (deepCopy .Values.config)) }}
{{- end }}

{{- /* The labels that the configuration names one by one, as a list in CEL. */ -}}
{{- define "nodeagent.labelKeys" -}}
{{- $labels := (fromYaml (include "nodeagent.config" .)).labels | default dict }}
{{- $keys := keys (get $labels "static" | default dict) | sortAlpha }}
{{- if has "gpu_manager" (get $labels "compatibility" | default list) }}
{{- $keys = append $keys "gaia.tencent.com/gpu-model" }}
{{- end }}
{{- toJson $keys }}
{{- end }}

{{- /* The types of node conditions that the configuration names, as a list in CEL. */ -}}
{{- define "nodeagent.conditionTypes" -}}
{{- $signals := (fromYaml (include "nodeagent.config" .)).signals | default dict }}
{{- $types := list }}
{{- range get $signals "node_conditions" | default list }}
{{- $types = append $types .type }}
{{- end }}
{{- toJson $types }}
{{- end }}

{{- /* The annotation by which a reboot is requested, where the configuration asks for one, as a list in CEL. */ -}}
{{- define "nodeagent.annotationKeys" -}}
{{- $repairs := (fromYaml (include "nodeagent.config" .)).repairs | default dict }}
{{- $annotation := $repairs.reboot_annotation | default dict }}
{{- toJson (ternary (list ($annotation.key | default "nodeagent.io/reboot-requested")) list (eq ($repairs.reboot_by | default "none") "node_annotation")) }}
{{- end }}

{{- /* The folder of the socket of NVSentinel's platform connector; empty where NVSentinel is told nothing. */ -}}
{{- define "nodeagent.nvsentinel" -}}
{{- $nvsentinel := ((fromYaml (include "nodeagent.config" .)).signals | default dict).nvsentinel | default dict }}
{{- if get $nvsentinel "enabled" -}}
{{ dir ($nvsentinel.socket | default "/var/run/nvsentinel/nvsentinel.sock") }}
{{- end }}
{{- end }}

{{- /* "true" where the configuration asks for files on the host that no mount of its own is for. */ -}}
{{- define "nodeagent.writesHost" -}}
{{- $config := fromYaml (include "nodeagent.config" .) }}
{{- $cdi := $config.cdi | default dict }}
{{- $runtime := $config.runtime | default dict }}
{{- $shim := $config.shim | default dict }}
{{- $moved := and (get $runtime "shim") (or (hasKey $shim "dir") (get $shim "nvidia_name_dir")) }}
{{- $moved = or $moved (get $cdi "nvidia_name_dir") }}
{{- if or (get $runtime "manage") $moved (and (hasKey $cdi "hook_dir") (ne (get $cdi "hooks") "none")) -}}
true
{{- end }}
{{- end }}

{{- /* "true" where programs are run in the host's root: to judge and restart a runtime, or to see that the shim runs. */ -}}
{{- define "nodeagent.runsOnHost" -}}
{{- $config := fromYaml (include "nodeagent.config" .) }}
{{- if or (include "nodeagent.writesHost" .) (get ($config.runtime | default dict) "shim") -}}
true
{{- end }}
{{- end }}

{{- /* "true" where GPUs are cut into MIG devices. */ -}}
{{- define "nodeagent.cutsGpus" -}}
{{- $mig := (fromYaml (include "nodeagent.config" .)).mig | default dict }}
{{- if get $mig "manage" -}}
true
{{- end }}
{{- end }}

{{- /* "true" where containers are held to parts of GPUs, and write what they use of them. */ -}}
{{- define "nodeagent.givesParts" -}}
{{- if or ((.Values.config).fractions).enabled ((.Values.config).claims).shares -}}
true
{{- end }}
{{- end }}

{{- /* Where pipes, logs and shared memory of MPS daemons lie; empty where nothing asks for daemons. */ -}}
{{- define "nodeagent.mpsRoot" -}}
{{- $config := .Values.config }}
{{- $fractions := $config.fractions | default dict }}
{{- $byParts := and (get $fractions "enabled") (eq (get $fractions "enforcement") "mps") }}
{{- if or $byParts (($config.sharing).mps) (($config.mps).claims) -}}
{{ (($config.device_plugin).mps_root) | default "/run/nvidia/mps" }}
{{- end }}
{{- end }}

{{- /* The folder of the driver's socket, where GPUs are given by claims; empty where they are not. */ -}}
{{- define "nodeagent.claims" -}}
{{- $claims := (fromYaml (include "nodeagent.config" .)).claims | default dict }}
{{- if get $claims "enabled" -}}
{{ $claims.plugins_dir }}/{{ $claims.driver | default "gpu.nvidia.com" }}
{{- end }}
{{- end }}

{{- /* Where the marker files go that operands of NVIDIA's operator wait for; empty where nobody asked for them. */ -}}
{{- define "nodeagent.markers" -}}
{{- $driver := (fromYaml (include "nodeagent.config" .)).driver | default dict }}
{{- if $driver.validation_markers -}}
{{ $driver.validation_dir | default "/run/nvidia/validations" }}
{{- end }}
{{- end }}
