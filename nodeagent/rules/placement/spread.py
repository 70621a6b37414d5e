"""The replicas and MIG devices to hand out: spread over the GPUs, or packed onto few.

Owns the two policies. As in the reference a device's use counts first; between devices equally used, the use of the GPU
around them counts, so that `packed` fills one GPU's MIG devices before it breaks into the next.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from nodeagent.model.ids import DeviceId, DeviceUuid
from nodeagent.rules.offer.devices import PluginDevice

Policy = Literal["distributed", "packed"]


class Spread:
    """The policies for a resource; counts the replicas once, for there may be thousands."""

    def __init__(self, devices: Iterable[PluginDevice], policy: Policy) -> None:
        self._totals: Counter[str] = Counter()
        for device in devices:
            self._totals.update(_places(device))
        self._sign = 1 if policy == "distributed" else -1

    def choose(self, free: Iterable[PluginDevice], count: int) -> tuple[DeviceId, ...]:
        """`count` of the free devices, given in index order, in the order picked; needs enough free devices."""
        stacks: dict[DeviceUuid, list[PluginDevice]] = {}
        for device in free:
            stacks.setdefault(device.uuid, []).append(device)
        order = {uuid: place for place, uuid in enumerate(stacks)}
        used = Counter(self._totals)
        for stack in stacks.values():
            # The replicas of one device are alike: the last of a stack is the next to go, the lowest number first.
            stack.reverse()
            used.subtract(dict.fromkeys(_places(stack[0]), len(stack)))
        picked: Counter[str] = Counter()
        chosen: list[DeviceId] = []

        def rank(uuid: DeviceUuid) -> tuple[int, int, int, int, int]:
            gpu = stacks[uuid][-1].gpu
            return self._sign * used[uuid], self._sign * used[gpu], picked[uuid], picked[gpu], order[uuid]

        for _ in range(count):
            device = stacks[min(stacks, key=rank)].pop()
            if not stacks[device.uuid]:
                del stacks[device.uuid]
            chosen.append(device.id)
            picked.update(_places(device))
            used.update(_places(device))
        return tuple(chosen)


def _places(device: PluginDevice) -> tuple[str, ...]:
    """The places to count a replica at: the device, and the GPU around it."""
    return (device.uuid,) if device.uuid == device.gpu else (device.uuid, device.gpu)
