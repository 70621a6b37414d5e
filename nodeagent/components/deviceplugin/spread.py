"""Which shares and MIG devices to give away: spread over the GPUs, or packed onto few.

Owns the two policies. As in the reference a device's use counts first; between devices equally used, that of the GPU
around them counts, so that `packed` fills one GPU's MIG devices before it breaks into the next.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from nodeagent.components.deviceplugin.offer import PluginDevice
from nodeagent.model.ids import DeviceId, DeviceUuid

Policy = Literal["distributed", "packed"]


def choose_spread(
    all_devices: Sequence[PluginDevice], free: Sequence[PluginDevice], count: int, policy: Policy
) -> tuple[DeviceId, ...]:
    """`count` of the free devices of a resource, in the order picked; needs at least that many."""
    used = Counter(device.uuid for device in all_devices)
    used.subtract(device.uuid for device in free)
    used_on_gpu = Counter(device.gpu for device in all_devices)
    used_on_gpu.subtract(device.gpu for device in free)
    picked: Counter[DeviceUuid] = Counter()
    # the shares of one device are alike: the last of each stack is the next to go, so the lowest number goes first
    stacks: dict[DeviceUuid, list[PluginDevice]] = {}
    for device in reversed(free):
        stacks.setdefault(device.uuid, []).append(device)
    order = {device.uuid: place for place, device in reversed(list(enumerate(free)))}
    sign = 1 if policy == "distributed" else -1
    chosen: list[DeviceId] = []
    for _ in range(count):
        uuid = min(
            stacks,
            key=lambda uuid: (
                sign * used[uuid],
                sign * used_on_gpu[stacks[uuid][-1].gpu],
                picked[uuid],
                picked[stacks[uuid][-1].gpu],
                order[uuid],
            ),
        )
        device = stacks[uuid].pop()
        if not stacks[uuid]:
            del stacks[uuid]
        chosen.append(device.id)
        picked.update((uuid, device.gpu))
        used[uuid] += 1
        used_on_gpu[device.gpu] += 1
    return tuple(chosen)
