{{- /* The groups of nodes with driver pods, each with all of its values; two groups that may share a node are refused. */ -}}
{{- define "nodeagent.driverGroups" -}}
{{- $common := omit .Values.driver "enabled" "groups" }}
{{- $groups := list }}
{{- range (.Values.driver.groups | default (list (dict "name" ""))) }}
{{- $group := mergeOverwrite (deepCopy $common) (deepCopy .) }}
{{- $where := ternary (printf "driver.groups, %s" .name) "driver" (ne .name "") }}
{{- if not $group.version }}
{{- fail (printf "%s: version is missing: the driver's version as in the image's tag, such as 570.172.08, or 570 where usePrecompiled is on" $where) }}
{{- end }}
{{- if not (or $group.os (hasPrefix "sha256:" $group.version)) }}
{{- fail (printf "%s: os is missing: the system of the nodes as in the image's tag, such as ubuntu24.04 or rhel9" $where) }}
{{- end }}
{{- if and $group.usePrecompiled (not $group.kernel) }}
{{- fail (printf "%s: kernel is missing: an image with usePrecompiled is for a single kernel, as uname -r prints it; write a group for each" $where) }}
{{- end }}
{{- if and $group.kernel (not $group.usePrecompiled) }}
{{- fail (printf "%s: kernel: only images with usePrecompiled are for a single kernel" $where) }}
{{- end }}
{{- if $group.kernel }}
{{- $_ := set $group.nodeSelector "feature.node.kubernetes.io/kernel-version.full" $group.kernel }}
{{- end }}
{{- range $other := $groups }}
{{- $apart := dict }}
{{- range $key, $value := $group.nodeSelector }}
{{- if and (hasKey $other.nodeSelector $key) (ne (get $other.nodeSelector $key) $value) }}
{{- $_ := set $apart "one" true }}
{{- end }}
{{- end }}
{{- if not $apart }}
{{- fail (printf "driver.groups: %s and %s may choose the same node: give both a label in nodeSelector with different values" $other.name $group.name) }}
{{- end }}
{{- end }}
{{- $groups = append $groups $group }}
{{- end }}
{{- toJson $groups }}
{{- end }}

{{- /* The image of a group: REPOSITORY/IMAGE:VERSION-OS, with the kernel between both where it is for a single one. */ -}}
{{- define "nodeagent.driverImage" -}}
{{- $name := ternary (printf "%s/%s" .repository .image) .image (ne .repository "") }}
{{- if hasPrefix "sha256:" .version }}
{{- printf "%s@%s" $name .version }}
{{- else if .usePrecompiled }}
{{- printf "%s:%s-%s-%s" $name .version .kernel .os }}
{{- else }}
{{- printf "%s:%s-%s" $name .version .os }}
{{- end }}
{{- end }}

{{- /* What the image is told, in both of its containers. */ -}}
{{- define "nodeagent.driverEnvironment" -}}
# No GPU is given to what brings the driver.
- {name: NVIDIA_VISIBLE_DEVICES, value: void}
- {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
- {name: NODE_IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
- {name: KERNEL_MODULE_TYPE, value: {{ .kernelModuleType }}}
{{- if .rdma.enabled }}
- {name: GPU_DIRECT_RDMA_ENABLED, value: "true"}
{{- if .rdma.useHostMofed }}
- {name: USE_HOST_MOFED, value: "true"}
{{- end }}
{{- end }}
{{- with .env }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}

{{- /* The files of the cluster's own in the image. */ -}}
{{- define "nodeagent.driverFiles" -}}
{{- range $number, $mount := .mounts }}
- name: files-{{ $number }}
  mountPath: {{ $mount.mountPath }}
  readOnly: true
  {{- with $mount.subPath }}
  subPath: {{ . }}
  {{- end }}
{{- end }}
{{- end }}
