"""THE list of conditions: what can be wrong with a node, as the person who is paged reads it.

`docs/conditions.md` is generated from it. Codes are stable: alerts and runbooks name them.
"""

from typing import Literal

from nodeagent.model.values import Value

Severity = Literal["info", "warning", "error"]


class ConditionDefinition(Value, frozen=True):
    """A condition before it is true of anything: its name, weight, and what to do about it."""

    code: str
    severity: Severity
    title: str
    remedy: str
    show_after_seconds: float = 0.0
    """Hidden for this long, so that what mends itself in passing wakes nobody."""
    depends_on: tuple[str, ...] = ()
    """Hidden while one of these is true, because it follows from it."""


def _driver(code: str, title: str, remedy: str, *, show_after_seconds: float = 0.0) -> ConditionDefinition:
    return ConditionDefinition(
        code=code, severity="error", title=title, remedy=remedy, show_after_seconds=show_after_seconds
    )


DRIVER_CONDITIONS: tuple[ConditionDefinition, ...] = (
    ConditionDefinition(
        code="driver-no-hardware",
        severity="warning",
        title="no NVIDIA GPU on the PCI bus",
        remedy="take nodeagent off this node, or check `lspci -d 10de:` and the BIOS if a GPU should be there",
    ),
    _driver(
        "driver-not-loaded",
        "the NVIDIA kernel module is not loaded",
        "load it with `modprobe nvidia nvidia-uvm`, or install the driver",
    ),
    _driver(
        "driver-wrong",
        "another kernel driver holds the GPU",
        "blacklist it (nouveau) or unbind it (vfio-pci), then load the NVIDIA module",
    ),
    _driver(
        "driver-library-missing",
        "libnvidia-ml.so.1 cannot be loaded",
        "install the driver's user-space libraries, or point `driver.root` or `driver.nvml_library` at them",
    ),
    _driver(
        "driver-version-mismatch",
        "the driver's library and its kernel module have different versions",
        "stop all GPU clients and reload the module, or reboot the node",
    ),
    _driver(
        "driver-no-permission",
        "the driver refuses this process",
        "run nodeagent as root with access to the /dev/nvidia* nodes, or mend their mode and device cgroup",
    ),
    _driver(
        "driver-nodes-missing",
        "device nodes of the driver are missing",
        "set `driver.manage_device_nodes: true`, or run `nvidia-modprobe -c 0 -u`",
    ),
    _driver(
        "driver-fabric-not-ready",
        "the NVLink fabric is not ready, CUDA would fail with error 802",
        "check `systemctl status nvidia-fabricmanager`; its version must equal the driver's",
        show_after_seconds=10.0,
    ),
    _driver(
        "driver-stuck",
        "a call into the driver does not come back",
        "read `dmesg | grep NVRM`; if it stays stuck, drain the node and reboot it",
    ),
    ConditionDefinition(
        code="nvml-worker-left-behind",
        severity="warning",
        title="a process of the agent sleeps in the driver and cannot be ended",
        remedy="read `dmesg | grep NVRM`; GPU and driver stay in use until the node is drained and rebooted",
    ),
    ConditionDefinition(
        code="driver-released",
        severity="info",
        title="the driver was released on purpose",
        remedy="run `nodeagent resume` when the work on the driver is done",
    ),
    _driver(
        "driver-unsupported",
        "this platform's driver is not supported",
        "use a Linux host with the NVIDIA data-centre driver; WSL and Tegra are not supported",
    ),
    _driver("driver-failed", "the driver does not work", "read `dmesg | grep NVRM` and the detail of this condition"),
)

DRIVER_CODES: tuple[str, ...] = tuple(definition.code for definition in DRIVER_CONDITIONS)

BLINDING_CODES: tuple[str, ...] = tuple(code for code in DRIVER_CODES if code != "driver-nodes-missing")
"""Those that explain why nothing is known of any GPU; NVML works without the nodes that only containers need."""

CONTAINER_CONDITIONS: tuple[ConditionDefinition, ...] = (
    ConditionDefinition(
        code="cdi-not-written",
        severity="error",
        title="CDI specifications cannot be brought up to date",
        remedy="mend what the detail names; the files that are in place stay as they are",
        depends_on=BLINDING_CODES,
    ),
    ConditionDefinition(
        code="cdi-conflict",
        severity="error",
        title="CDI files cancel each other out",
        remedy="remove one of the files that the detail names, or stop the program that writes it",
        show_after_seconds=5.0,
    ),
    ConditionDefinition(
        code="cdi-file-invalid",
        severity="warning",
        title="a CDI file of another program is invalid, runtimes ignore it",
        remedy="mend or remove the file; `nodeagent cdi validate` shows what is wrong with it",
        show_after_seconds=5.0,
    ),
    ConditionDefinition(
        code="cdi-device-left-out",
        severity="warning",
        title="a GPU has no CDI entry, containers cannot be given it",
        remedy="mend what the detail names; `nodeagent cdi generate` shows what would be written",
        show_after_seconds=5.0,
        depends_on=BLINDING_CODES,
    ),
    ConditionDefinition(
        code="cdi-driver-files-missing",
        severity="warning",
        title="the driver's libraries are not found, containers get only device nodes",
        remedy="point `driver.root` at the driver installation",
        depends_on=BLINDING_CODES,
    ),
    ConditionDefinition(
        code="runtime-not-found",
        severity="warning",
        title="the container runtime that serves the kubelet is not known",
        remedy="start it, or set `runtime.kind` and `runtime.socket`; `nodeagent runtime detect` shows what was seen",
        show_after_seconds=30.0,
    ),
    ConditionDefinition(
        code="runtime-cdi-off",
        severity="error",
        title="the container runtime does not take CDI devices, pods that ask for GPUs will not start",
        remedy="run `nodeagent runtime plan`, then `nodeagent runtime configure`, or set `runtime.manage: true`",
        show_after_seconds=5.0,
    ),
    ConditionDefinition(
        code="runtime-config-blocked",
        severity="error",
        title="the container runtime's configuration cannot be changed as it should",
        remedy="mend what the detail names; nothing was written",
    ),
    ConditionDefinition(
        code="runtime-restart-needed",
        severity="warning",
        title="the container runtime must be restarted for its configuration to take effect",
        remedy="run the command in the detail when convenient; running containers survive it",
    ),
    ConditionDefinition(
        code="runtime-config-conflict",
        severity="error",
        title="another program keeps undoing the container runtime's configuration",
        remedy="find the program that writes the file in the detail, and have it keep the setting",
    ),
    ConditionDefinition(
        code="runtime-restart-failed",
        severity="error",
        title="the container runtime did not come back as it should, the change was rolled back",
        remedy="read the runtime's log; it is not tried again until a file or a setting changes",
    ),
)

HEALTH_CONDITIONS: tuple[ConditionDefinition, ...] = (
    ConditionDefinition(
        code="gpu-unhealthy",
        severity="error",
        title="a GPU is not fit for work",
        remedy="follow the detail; `nodeagent gpu health` shows all devices and how each may return",
        depends_on=BLINDING_CODES,
    ),
    ConditionDefinition(
        code="gpu-suspect",
        severity="warning",
        title="a GPU works and needs attention",
        remedy="follow the detail; `nodeagent gpu health` shows all devices and how each may return",
        depends_on=BLINDING_CODES,
    ),
    ConditionDefinition(
        code="gpu-health-unknown",
        severity="warning",
        title="a GPU has not answered for too long, it is not handed out",
        remedy="check `nodeagent status` for a stuck driver call and `dmesg | grep NVRM` for the GPU's address",
        show_after_seconds=15.0,
        depends_on=BLINDING_CODES,
    ),
    ConditionDefinition(
        code="health-unwatched",
        severity="warning",
        title="faults of GPUs may go unseen",
        remedy="check the driver and the detail; polled levels are judged as long as they can be read",
        show_after_seconds=15.0,
        depends_on=BLINDING_CODES,
    ),
    ConditionDefinition(
        code="kernel-log-unwatched",
        severity="info",
        title="the kernel log cannot be read, XIDs are known from NVML alone",
        remedy="give nodeagent CAP_SYSLOG and /dev/kmsg, or set `health.watch_kernel_log: false`",
    ),
    ConditionDefinition(
        code="health-not-durable",
        severity="warning",
        title="verdicts about GPUs cannot be written down, a restart would forget the newest",
        remedy="free space on the file system of `node.state_dir` and check that it is writable",
        show_after_seconds=2.0,
    ),
    ConditionDefinition(
        code="health-history-lost",
        severity="info",
        title="stored verdicts were damaged, faults that only a person could clear may be forgotten",
        remedy="look at the file that was moved aside; this stands until the agent is restarted",
    ),
)

CATALOGUE: tuple[ConditionDefinition, ...] = (
    *DRIVER_CONDITIONS,
    *CONTAINER_CONDITIONS,
    *HEALTH_CONDITIONS,
    ConditionDefinition(
        code="component-failed",
        severity="error",
        title="a part of the agent has crashed too often and was given up",
        remedy="read its last error in `nodeagent status`, report it, and restart the agent",
    ),
    ConditionDefinition(
        code="gpu-missing",
        severity="error",
        title="a GPU on the PCI bus is not listed by the driver",
        remedy="read `dmesg | grep NVRM` for its address; reset or reseat the GPU, or reboot the node",
        depends_on=BLINDING_CODES,
    ),
    ConditionDefinition(
        code="gpu-lost",
        severity="error",
        title="a GPU no longer answers",
        remedy="drain the node and reboot it; replace the GPU if it happens again",
        depends_on=BLINDING_CODES,
    ),
    ConditionDefinition(
        code="gpu-unreadable",
        severity="warning",
        title="something of a GPU could not be read",
        remedy="see `nodeagent gpu list --json`; mostly an old driver or a missing permission",
        show_after_seconds=30.0,
        depends_on=BLINDING_CODES,
    ),
    ConditionDefinition(
        code="sample-stale",
        severity="warning",
        title="GPU readings are old",
        remedy="check `nodeagent status` for a stuck driver call; the last values are still served, marked stale",
        show_after_seconds=10.0,
        depends_on=BLINDING_CODES,
    ),
    ConditionDefinition(
        code="metrics-fields-unusable",
        severity="warning",
        title="a line of the list of metrics cannot be used",
        remedy="see `nodeagent metrics list`; mend or remove the line in `metrics.fields_file`, the others are in use",
    ),
    ConditionDefinition(
        code="journal-unavailable",
        severity="error",
        title="the allocation journal cannot be written",
        remedy="mend what the detail names; until then `journal.on_failure` decides whether pods are refused",
    ),
    ConditionDefinition(
        code="journal-damaged",
        severity="warning",
        title="the allocation journal was damaged",
        remedy="check the disk; the damaged file is kept beside it, what it lacked was taken from the kubelet",
    ),
    ConditionDefinition(
        code="allocations-differ",
        severity="warning",
        title="the allocation journal and the kubelet do not agree",
        remedy="see `nodeagent allocations`; restart the pods of forgotten allocations when convenient",
    ),
    ConditionDefinition(
        code="pod-resources-unavailable",
        severity="warning",
        title="the kubelet does not say which pod holds which device",
        remedy="check `kubelet.pod_resources_socket`; devices are handed out, but names and releases are not learnt",
        show_after_seconds=30.0,
    ),
    ConditionDefinition(
        code="plugin-devices-withheld",
        severity="warning",
        title="devices or settings cannot be offered as configured",
        remedy="mend what the detail names; everything else is offered",
        depends_on=BLINDING_CODES,
    ),
    ConditionDefinition(
        code="plugin-not-registered",
        severity="error",
        title="the kubelet does not know a resource of this node",
        remedy="check that the kubelet runs and that `kubelet.device_plugins_dir` is its directory",
        show_after_seconds=10.0,
    ),
    ConditionDefinition(
        code="plugin-contested",
        severity="error",
        title="another device plugin offers a resource of this node",
        remedy="take the other plugin off this node, or give one of the two another resource name",
    ),
    ConditionDefinition(
        code="api-unreachable",
        severity="warning",
        title="the API server cannot be used",
        remedy="mend what the detail names; devices are advertised all the same, labels and conditions catch up later",
        show_after_seconds=30.0,
    ),
    ConditionDefinition(
        code="labels-not-written",
        severity="warning",
        title="the node's labels are not as they should be",
        remedy="mend what the detail names, see `nodeagent labels`; the last ones stay",
        show_after_seconds=30.0,
        depends_on=("api-unreachable",),
    ),
    ConditionDefinition(
        code="labels-contested",
        severity="warning",
        title="somebody else writes a label of this node otherwise",
        remedy="stop the other writer, or take the label off with `kubectl label node NAME KEY-`",
        show_after_seconds=30.0,
    ),
    ConditionDefinition(
        code="labels-left-out",
        severity="info",
        title="a label would not be legal and is left out",
        remedy="report it with the name of the GPU; all other labels are written",
    ),
    ConditionDefinition(
        code="node-not-updated",
        severity="warning",
        title="the node's condition or taint is not as it should be",
        remedy="mend what the detail names; mostly a missing right, see deploy/rbac.yaml",
        show_after_seconds=30.0,
        depends_on=("api-unreachable",),
    ),
    ConditionDefinition(
        code="node-paused",
        severity="info",
        title="the cluster has paused this node's GPU parts, all handles are released",
        remedy="wait for the driver upgrade or MIG change, or set the label in the detail back to true",
    ),
    ConditionDefinition(
        code="mig-config-changing",
        severity="info",
        title="another manager is changing how this node's GPUs are partitioned",
        remedy="wait for it; while nvidia.com/gpu.deploy.* labels are paused all GPU handles are released",
    ),
    ConditionDefinition(
        code="mig-config-not-applied",
        severity="warning",
        title="the node's label asks for a MIG configuration that the GPUs do not have",
        remedy="have a MIG manager carry it out, or correct the label nvidia.com/mig.config; what there is stays",
        show_after_seconds=30.0,
    ),
    ConditionDefinition(
        code="pod-labels-unknown",
        severity="warning",
        title="the labels of pods cannot be read for metrics",
        remedy="mend what the detail names; mostly a missing right, see deploy/rbac-pod-labels.yaml",
        show_after_seconds=30.0,
    ),
    ConditionDefinition(
        code="named-configuration-unknown",
        severity="warning",
        title="the node's label asks for a configuration that there is none of",
        remedy="correct the label nvidia.com/device-plugin.config or add the file; the present one stays in force",
    ),
    ConditionDefinition(
        code="node-lost-for-good",
        severity="error",
        title="the GPUs did not become ready in all the attempts allowed",
        remedy="replace or repair the node; nodeagent goes on trying and takes this back when it succeeds",
    ),
    ConditionDefinition(
        code="configuration-invalid",
        severity="warning",
        title="the changed configuration is invalid, the one before is still in force",
        remedy="run `nodeagent config check`, mend what it names, and reload",
    ),
    ConditionDefinition(
        code="configuration-needs-restart",
        severity="info",
        title="changed settings wait for a restart of the agent",
        remedy="restart nodeagent when convenient",
    ),
    ConditionDefinition(
        code="part-not-built",
        severity="info",
        title="a configured part of nodeagent is not built yet",
        remedy="remove the section, or keep it for the release that has the part",
    ),
)
