"""What can be wrong with the GPUs, and with asking them."""

from nodeagent.model.conditions.definition import ConditionDefinition
from nodeagent.model.conditions.driver import BLINDING_BUT_ABSENCE, BLINDING_CODES

HARDWARE_CONDITIONS: tuple[ConditionDefinition, ...] = (
    ConditionDefinition(
        code="gpu-unhealthy",
        severity="error",
        title="a GPU is not fit for work",
        remedy="follow the detail; `nodeagent gpu health` shows all devices and how each may return",
        depends_on=(*BLINDING_CODES, "gpu-lost"),
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
        remedy="read `dmesg | grep NVRM` for the GPU's address; if it stays silent, drain the node and reboot it",
        show_after_seconds=15.0,
        depends_on=BLINDING_CODES,
    ),
    ConditionDefinition(
        code="health-unwatched",
        severity="warning",
        title="faults of GPUs may go unseen",
        remedy="check the driver and the detail; polled levels are judged as long as they can be read",
        show_after_seconds=15.0,
        depends_on=(*BLINDING_CODES, "sample-stale"),
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
    ConditionDefinition(
        code="nvml-worker-left-behind",
        severity="warning",
        title="a process of the agent sleeps in the driver and cannot be ended",
        remedy="read `dmesg | grep NVRM`; GPU and driver stay in use until the node is drained and rebooted",
    ),
    ConditionDefinition(
        code="nvml-worker-restarts",
        severity="warning",
        title="the process that asks the driver is replaced again and again",
        remedy="read `dmesg | grep NVRM`; drain the node, and reload or reinstall the driver if it goes on",
        depends_on=BLINDING_CODES,
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
        remedy="drain the node and power-cycle it; check cables and seating if the fault returns",
        depends_on=BLINDING_CODES,
    ),
    ConditionDefinition(
        code="gpu-vanished",
        severity="error",
        title="a GPU that this node had is gone",
        remedy="reseat or replace it; if it is gone for good: `nodeagent gpu forget GPU`, or set `gpus.expected`",
        depends_on=(*BLINDING_BUT_ABSENCE, "gpus-all-gone"),
    ),
    ConditionDefinition(
        code="gpus-all-gone",
        severity="error",
        title="all GPUs that this node had are gone",
        remedy="check power, risers and `lspci -d 10de:`; if they are gone for good: `nodeagent gpu forget GPU` for"
        " each, or `gpus.expected: 0`",
        depends_on=BLINDING_BUT_ABSENCE,
    ),
    ConditionDefinition(
        code="gpus-fewer-than-expected",
        severity="error",
        title="this node has fewer GPUs than it should have",
        remedy="check `lspci -d 10de:` and the BIOS; correct who says so if the node was built with fewer",
        depends_on=BLINDING_BUT_ABSENCE,
    ),
    ConditionDefinition(
        code="gpus-expected-label-unreadable",
        severity="warning",
        title="the node's label does not say how many GPUs there should be",
        remedy="correct the label nvidia.com/gpu.expected.count or take it off; until then it is not followed",
    ),
    ConditionDefinition(
        code="gpus-not-remembered",
        severity="warning",
        title="the list of known GPUs cannot be kept, one that vanishes during a restart would not be missed",
        remedy="free space on the file system of `node.state_dir` and check that it is writable",
        show_after_seconds=2.0,
    ),
    ConditionDefinition(
        code="gpus-list-lost",
        severity="warning",
        title="the list of known GPUs was damaged, one that has vanished meanwhile is not missed",
        remedy="compare `nodeagent gpu list` with what the node should have; this stands until the agent is restarted",
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
        remedy="read `dmesg | grep NVRM`; the last values are still served, marked stale; if it lasts, reboot the node",
        depends_on=BLINDING_CODES,
    ),
    ConditionDefinition(
        code="inventory-stale",
        severity="warning",
        title="the list of GPUs is old",
        remedy="read `dmesg | grep NVRM`; GPUs that come, go or are cut are not noticed meanwhile; if it lasts, reboot"
        " the node",
        show_after_seconds=30.0,
        depends_on=BLINDING_CODES,
    ),
    ConditionDefinition(
        code="metrics-fields-unusable",
        severity="warning",
        title="a line of the list of metrics cannot be used",
        remedy="see `nodeagent metrics list`; mend or remove the line in `metrics.fields_file`, the others are in use",
    ),
)
