"""Conditions of fractions of GPUs, of claims and of daemons of MPS."""

from nodeagent.model.conditions.definition import ConditionDefinition
from nodeagent.model.conditions.driver import BLINDING_CODES

FRACTIONS_CONDITIONS: tuple[ConditionDefinition, ...] = (
    ConditionDefinition(
        code="claims-not-registered",
        severity="error",
        title="the kubelet does not know the driver of claims: no pod with a claim for these GPUs starts",
        remedy="see that the kubelet runs, is 1.32 or newer, and shares the two directories of the section `claims`",
        show_after_seconds=30.0,
    ),
    ConditionDefinition(
        code="claims-without-api",
        severity="error",
        title="claims are to be served, and there is no way to the API server",
        remedy="run the agent with a service account, or set kubernetes.kubeconfig; claims are read from there",
    ),
    ConditionDefinition(
        code="claim-refused",
        severity="warning",
        title="a claim is not made ready or not put away",
        remedy="the reason says which device and what is wrong with it: see `nodeagent claims explain`",
    ),
    ConditionDefinition(
        code="claim-metadata-not-written",
        severity="warning",
        title="a claim has no metadata files: programs that read about their devices there find nothing",
        remedy="mend what the detail names, and start the pods anew: a running container keeps its files",
    ),
    ConditionDefinition(
        code="part-no-room",
        severity="warning",
        title="a container waits for a part of a GPU",
        remedy="nothing if pods end soon; else move pods, or send it elsewhere: see `nodeagent fractions list`",
    ),
    ConditionDefinition(
        code="parts-without-cdi",
        severity="error",
        title="parts of GPUs are not given: the container runtime does not take CDI devices",
        remedy="do what the detail says, or give the GPUs whole: `nodeagent gpu set-door GPU whole`",
        show_after_seconds=5.0,
    ),
    ConditionDefinition(
        code="part-orphaned",
        severity="warning",
        title="a container uses a part of a GPU of which the kubelet knows nothing any more",
        remedy="restart the pods that are named when convenient; their parts stay theirs until they have ended",
    ),
    ConditionDefinition(
        code="parts-not-given-back",
        severity="error",
        title="parts of GPUs are not given back when containers end: the kubelet's container runtime cannot be asked",
        remedy="set `runtime.socket` to the socket of the kubelet's runtime; in a pod it takes `gpuAccess: privileged`."
        " What has ended meanwhile is given back at the first answer",
        # A restart of the runtime takes less.
        show_after_seconds=30.0,
    ),
    ConditionDefinition(
        code="part-library-absent",
        severity="warning",
        title="a container uses a GPU without the library that holds it to its part",
        remedy="a program that is linked statically, or an image with a loader of its own: see docs/vgpu.md",
        show_after_seconds=10.0,
    ),
    ConditionDefinition(
        code="part-usage-grown",
        severity="warning",
        title="a container fills the file in which its use of a GPU is counted",
        remedy="look at the pod that is named: no program does this by mistake; the file is cut every five seconds",
    ),
    ConditionDefinition(
        code="part-usage-unbounded",
        severity="info",
        title="files that containers write lie on the node's disk, which a container may fill for some seconds",
        remedy="nothing where only containers from before an upgrade run; else mount a small tmpfs: docs/security.md",
    ),
    ConditionDefinition(
        code="part-over-memory",
        severity="warning",
        title="a container uses more of a GPU's memory than its part",
        remedy="end or move the pod, or have the vGPU library hold it to its part; others there may find no memory",
        show_after_seconds=5.0,
    ),
    ConditionDefinition(
        code="part-foreign-use",
        severity="warning",
        title="a program that was given nothing uses a GPU that is given in parts",
        remedy="end it, or have its pod ask for a part; a host's program that may stay: `fractions.ignored_processes`",
        # Longer than the pause between two polls: a fault of a single poll is over already.
        show_after_seconds=12.0,
        depends_on=(*BLINDING_CODES, "gpu-lost"),
    ),
    ConditionDefinition(
        code="part-use-unseen",
        severity="info",
        title="what containers use of a GPU that they share cannot be told",
        remedy="let the agent see the host's processes: `hostPID: true` in the chart",
        show_after_seconds=10.0,
    ),
    ConditionDefinition(
        code="mps-daemon-down",
        severity="error",
        title="an MPS daemon is not ready, shares of its GPU are not given out",
        remedy="mend what the detail names; it is tried again by itself, see `nodeagent mps`",
        show_after_seconds=5.0,
        depends_on=BLINDING_CODES,
    ),
    ConditionDefinition(
        code="mps-waits",
        severity="info",
        title="an MPS daemon waits for those who have its GPU otherwise",
        remedy="end the pods that the detail names; nobody new gets a share until then",
        show_after_seconds=5.0,
        depends_on=BLINDING_CODES,
    ),
    ConditionDefinition(
        code="mps-clients-lost",
        severity="warning",
        title="an MPS daemon or a server of it ended, and pods lost their work on the GPU",
        remedy="restart the pods that the detail names where they do not come back by themselves",
    ),
    ConditionDefinition(
        code="mps-record-unreadable",
        severity="error",
        title="a GPU was changed for MPS by another version of the agent, and cannot be given back by this one",
        remedy="run that version again, or end the daemon by hand and run `nvidia-smi -i UUID -c DEFAULT`",
    ),
)
