{{- define "nodeagent.image" -}}
"{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
{{- end }}

{{- /* What the agent needs of a node, whether it runs there or takes back what it did. */ -}}
{{- define "nodeagent.container" -}}
image: {{ include "nodeagent.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
env:
  - name: NODE_NAME
    valueFrom:
      fieldRef:
        fieldPath: spec.nodeName
  - name: POD_NAME
    valueFrom:
      fieldRef:
        fieldPath: metadata.name
  {{- if eq .Values.gpuAccess "runtimeClass" }}
  # What NVIDIA's runtime reads: all GPUs, and the library that looks at them.
  - name: NVIDIA_VISIBLE_DEVICES
    value: all
  - name: NVIDIA_DRIVER_CAPABILITIES
    value: utility
  {{- if include "nodeagent.cutsGpus" . }}
  # And the right to cut them.
  - name: NVIDIA_MIG_CONFIG_DEVICES
    value: all
  {{- end }}
  {{- end }}
securityContext:
  # root: the kubelet's directories are root's alone.
  runAsUser: 0
  readOnlyRootFilesystem: true
  {{- if eq .Values.gpuAccess "privileged" }}
  # The device cgroup of any other container has no GPU in it, and this is the program that puts them there.
  privileged: true
  {{- else }}
  privileged: false
  allowPrivilegeEscalation: false
  capabilities:
    drop: ["ALL"]
    {{- if or (include "nodeagent.cutsGpus" .) (include "nodeagent.mpsRoot" .) }}
    # The driver lets nobody else cut GPUs or set who may use one; its tool that resets one, and MPS daemons, run in the
    # host's root, and a daemon has a /dev/shm of its own.
    add: ["SYS_ADMIN", "SYS_CHROOT"]
    {{- else if include "nodeagent.runsOnHost" . }}
    # The host's own programs judge a runtime's configuration and restart it, in the host's root; the shim is tried there.
    add: ["SYS_CHROOT"]
    {{- end }}
  seccompProfile:
    type: RuntimeDefault
  {{- end }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
volumeMounts:
  - {name: config, mountPath: /etc/nodeagent, readOnly: true}
  - {name: token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
  - {name: run, mountPath: /run/nodeagent}
  - {name: tmp, mountPath: /tmp}
  - {name: state, mountPath: /var/lib/nodeagent}
  - {name: device-plugins, mountPath: /var/lib/kubelet/device-plugins}
  - {name: pod-resources, mountPath: {{ .Values.kubeletRoot }}/pod-resources, readOnly: true}
  - {name: pods-api, mountPath: {{ .Values.kubeletRoot }}/pods-api, readOnly: true}
  - {name: cdi, mountPath: /var/run/cdi}
  {{- with include "nodeagent.claims" . }}
  - {name: dra-plugin, mountPath: {{ . }}}
  - {name: plugins-registry, mountPath: {{ $.Values.kubeletRoot }}/plugins_registry}
  {{- end }}
  {{- with include "nodeagent.nvsentinel" . }}
  - {name: nvsentinel, mountPath: {{ . }}}
  {{- end }}
  {{- with include "nodeagent.mpsRoot" . }}
  # What is mounted there, the daemons' /dev/shm, is the host's too; Kubernetes allows that to privileged containers alone.
  - {name: mps, mountPath: {{ . }}, mountPropagation: {{ ternary "Bidirectional" "None" (eq $.Values.gpuAccess "privileged") }}}
  {{- end }}
  {{- with include "nodeagent.markers" . }}
  - {name: markers, mountPath: {{ . }}}
  {{- end }}
  {{- if ne .Values.gpuAccess "none" }}
  - {name: host, mountPath: /host, readOnly: {{ not (include "nodeagent.writesHost" .) }}, mountPropagation: HostToContainer}
  {{- end }}
  {{- if eq .Values.gpuAccess "privileged" }}
  - {name: dev, mountPath: /dev}
  {{- end }}
{{- end }}

{{- /* Labels by which nodes are known to have NVIDIA GPUs: node feature discovery's, and one that a person writes. */ -}}
{{- define "nodeagent.gpuLabels" -}}
feature.node.kubernetes.io/pci-10de.present nvidia.com/gpu.present
{{- end }}

{{- /* "true" where these labels choose the nodes. */ -}}
{{- define "nodeagent.goesByLabels" -}}
{{- if and (not .Values.affinity) (or (eq .Values.gpuNodes "labels") (eq .Values.gpuAccess "runtimeClass")) -}}
true
{{- end }}
{{- end }}
