"""Conditions of offering GPUs to pods, and of the journal of allocations."""

from nodeagent.model.conditions.definition import ConditionDefinition
from nodeagent.model.conditions.driver import BLINDING_BUT_ABSENCE, BLINDING_CODES

OFFERING_CONDITIONS: tuple[ConditionDefinition, ...] = (
    ConditionDefinition(
        code="journal-unavailable",
        severity="error",
        title="the allocation journal cannot be written",
        remedy="mend what the detail names; until then `journal.on_failure` decides whether pods are refused",
    ),
    ConditionDefinition(
        code="state-directory-full",
        severity="warning",
        title="the disk of the allocation journal is nearly full",
        remedy="make room there, `du -xh --max-depth=1` finds what takes it; once it is full, pods are refused",
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
        code="nothing-offered",
        severity="error",
        title="pods cannot get any GPU of this node",
        remedy="follow the detail, and what the conditions of each GPU say; drain the node if it lasts",
        show_after_seconds=15.0,
        depends_on=(*BLINDING_BUT_ABSENCE, "gpu-include-empty", "gpus-all-gone"),
    ),
    ConditionDefinition(
        code="gpu-not-offered",
        severity="warning",
        title="pods cannot get a GPU of this node",
        remedy="mend what the detail names; the others are offered",
        show_after_seconds=5.0,
        depends_on=(
            *BLINDING_CODES,
            "gpu-lost",
            "gpu-unhealthy",
            "gpu-health-unknown",
            "cdi-device-left-out",
            "plugin-not-registered",
        ),
    ),
    ConditionDefinition(
        code="gpu-include-empty",
        severity="error",
        title="`gpus.include` means no GPU of this node, none is offered",
        remedy="correct `gpus.include` by an index, UUID, PCI address or model pattern of `nodeagent gpu list`",
    ),
    ConditionDefinition(
        code="gpu-excluded",
        severity="info",
        title="a GPU is left alone by configuration",
        remedy="nothing needs to be done; to offer it, change `gpus.include` or `gpus.exclude`",
    ),
    ConditionDefinition(
        code="gpu-door",
        severity="info",
        title="a GPU is not given out whole",
        remedy="`nodeagent gpu doors` shows who decides, `nodeagent gpu set-door GPU whole` gives it back",
    ),
    ConditionDefinition(
        code="gpu-cordoned",
        severity="info",
        title="a GPU is cordoned: new pods do not get it, and pods that have it keep it",
        remedy="`nodeagent gpu uncordon GPU`, or the GPU's entry taken out of the annotation that the detail names",
    ),
    ConditionDefinition(
        code="gpu-braked",
        severity="error",
        title="the brake has closed a GPU: pod after pod was lost on the GPU",
        remedy="mend what the detail names; `nodeagent gpu uncordon GPU` opens it at once, later a pod that lasts does",
    ),
    ConditionDefinition(
        code="cordon-refused",
        severity="warning",
        title="a cordon of GPUs is misspelt, or cannot be kept",
        remedy="mend the node's annotation as the detail says; what was cordoned before stays cordoned",
    ),
    ConditionDefinition(
        code="door-waits",
        severity="info",
        title="a GPU shall go through another door, and somebody has it",
        remedy="wait, or end the pods that are named; `nodeagent gpu set-door GPU configured` takes a choice back",
    ),
    ConditionDefinition(
        code="door-unserved",
        severity="warning",
        title="a GPU is behind a door that nothing here serves",
        remedy="choose another in `doors.rules`, or set `fractions.enabled` or `claims.enabled` and restart the agent",
    ),
    ConditionDefinition(
        code="door-undecided",
        severity="info",
        title="a GPU does not answer, so that its door is not decided",
        remedy="mend the GPU as `gpu-missing` says; nothing needs to be done about `doors.rules`",
    ),
    ConditionDefinition(
        code="doors-unclear",
        severity="warning",
        title="rules about doors contradict one another, or mean no GPU",
        remedy="mend `doors.rules` as it says; the first rule that fits a GPU counts",
    ),
    ConditionDefinition(
        code="mig-not-offered",
        severity="warning",
        title="a GPU is cut into MIG devices, and offered as a whole",
        remedy="set `device_plugin.mig_strategy` to single or mixed, or switch MIG off",
        show_after_seconds=5.0,
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
)


DEVICES_CONDITIONS: tuple[ConditionDefinition, ...] = (
    ConditionDefinition(
        code="device-gone",
        severity="error",
        title="a device is gone while a container has it",
        remedy="bring it back, or delete the pod that the detail names; the device is given again once it is back",
    ),
    ConditionDefinition(
        code="device-unhealthy",
        severity="warning",
        title="a device does not work, pods are not given it",
        remedy="mend what the detail names; it is given again after as many clean looks as `health.clean_polls` says",
    ),
    ConditionDefinition(
        code="devices-missing",
        severity="warning",
        title="there are fewer devices of a class than there should be",
        remedy="check the hardware and its kernel module, or correct `expected` of the class",
        show_after_seconds=10.0,
    ),
    ConditionDefinition(
        code="devices-unclear",
        severity="warning",
        title="nodes of a class of devices are not given to anybody",
        remedy="narrow the class as the detail says; `nodeagent devices` shows what each class has",
    ),
    ConditionDefinition(
        code="devices-not-named",
        severity="error",
        title="devices of a class cannot be named to container runtimes",
        remedy="mend what the detail names; until then no pod is given one",
        show_after_seconds=5.0,
    ),
)
