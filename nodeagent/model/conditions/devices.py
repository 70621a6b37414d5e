"""Conditions of devices of other vendors."""

from nodeagent.model.conditions.definition import ConditionDefinition

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
