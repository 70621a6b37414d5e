"""Conditions of partitioning GPUs by MIG."""

from nodeagent.model.conditions.definition import ConditionDefinition

MIG_CONDITIONS: tuple[ConditionDefinition, ...] = (
    ConditionDefinition(
        code="mig-change-waits",
        severity="info",
        title="a change of a GPU's MIG layout waits for those who use it",
        remedy="end the pods and processes that the detail names; nobody new gets what the change takes away",
        show_after_seconds=5.0,
    ),
    ConditionDefinition(
        code="mig-change-failed",
        severity="error",
        title="the MIG layout that is asked for is not in place",
        remedy="mend what the detail names, then ask again: `nodeagent mig apply`, or set the label to another value"
        " and back, or bring a lost GPU back; each GPU that is not named as half way is as it was before",
    ),
    ConditionDefinition(
        code="mig-half-way",
        severity="error",
        title="a GPU is cut neither as it was nor as it is asked for",
        remedy="end what uses the GPU and run `nodeagent mig apply`; where that fails too, reset the GPU or reboot",
    ),
    ConditionDefinition(
        code="mig-reboot-needed",
        severity="warning",
        title="a GPU's MIG mode does not count before the node is booted",
        remedy="drain the node and boot it; the layout is applied by itself after that",
    ),
    ConditionDefinition(
        code="mig-clients-paused",
        severity="warning",
        title="other DaemonSets are still paused for a MIG change that is over",
        remedy="mend what the detail names; it is tried again every few seconds, and after a restart",
        show_after_seconds=15.0,
    ),
    ConditionDefinition(
        code="mig-drifted",
        severity="warning",
        title="somebody has cut a GPU otherwise since the MIG layout was in place",
        remedy="run `nodeagent mig apply` to have the layout again, or ask for another one",
        show_after_seconds=30.0,
    ),
    ConditionDefinition(
        code="mig-layouts-invalid",
        severity="error",
        title="MIG layouts of the configuration or of its file cannot be used",
        remedy="mend what the detail names; sound layouts beside them can be used",
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
        remedy="turn `mig.manage` on, have a MIG manager carry it out, or correct the label nvidia.com/mig.config;"
        " what there is stays",
        show_after_seconds=30.0,
    ),
)
