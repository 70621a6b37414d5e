"""The node conditions of device classes other than NVIDIA's GPUs, for classes with a condition.

Owns reasons and messages, as `status` does for GPUs. Pure.
"""

from collections.abc import Iterable, Iterator

from nodeagent.config.sections.devices import DeviceClass
from nodeagent.model.cluster import DEVICE_PREFIX, NodeCondition
from nodeagent.model.devices import DeviceClassState, DeviceTable, Standing


def decide_device_conditions(table: DeviceTable | None, classes: Iterable[DeviceClass]) -> Iterator[NodeCondition]:
    """A condition for each class with a condition's name, as soon as its devices are known."""
    known = table.classes if table is not None else ()
    states: dict[str, DeviceClassState] = {state.resource: state for state in known}
    for each in classes:
        state = states.get(each.resource or "")
        if each.condition is not None and state is not None:
            yield _judge(f"{DEVICE_PREFIX}{each.condition}", state, each.expected)


def _judge(kind: str, state: DeviceClassState, expected: int | None) -> NodeCondition:
    working, count = state.healthy_count, max(len(state.devices), expected or 0)
    if not count:
        return NodeCondition(type=kind, status="False", reason="NoDevices", message=f"no {state.resource} is there")
    message = f"{working} of {count} {state.resource} {'works' if working == 1 else 'work'}"
    if working == count:
        return NodeCondition(type=kind, status="True", reason="DevicesReady", message=message)
    ill = [f"{one.name}: {one.reason}" for one in state.devices if one.standing is not Standing.HEALTHY]
    absent = count - len(state.devices)
    told = "; ".join((message, *ill, *([f"{absent} not found"] if absent else ())))
    if not working:
        return NodeCondition(type=kind, status="False", reason="NoDeviceWorks", message=told)
    return NodeCondition(type=kind, status="True", reason="SomeDevicesFail", message=told)
