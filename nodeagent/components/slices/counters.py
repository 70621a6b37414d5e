"""The counters of a GPU's possible MIG devices, so that a scheduler can promise a MIG device before its creation.

Owns the sets of counters: one for each GPU that is cut on demand, with all resources of the GPU's profiles and a
counter for each memory slice. Two devices of a GPU with conflicting needs are never both allocated.
"""

import re
from collections.abc import Mapping
from typing import Final

from nodeagent.components.slices.describe import count_most, count_place
from nodeagent.model.gpu import Gpu
from nodeagent.model.slices import CounterSet
from nodeagent.rules.claims.naming import NamedDevice, list_places, name_gpu

_HUMP: Final = re.compile(r"(?=[A-Z])")


def count_gpu(gpu: Gpu) -> CounterSet:
    """The counters of a whole GPU."""
    ends = (place.start + place.profile.placement_size for place in list_places(gpu))
    return _make_set(gpu, count_most(gpu), range(max(ends, default=0)))


def count_need(device: NamedDevice) -> CounterSet:
    """The counters that a device consumes: the whole GPU's, or those of the MIG device's place."""
    place = device.place
    if place is None:
        return count_gpu(device.gpu)
    return _make_set(device.gpu, count_place(place), range(place.start, place.start + place.profile.placement_size))


def _make_set(gpu: Gpu, amounts: Mapping[str, int], slots: range) -> CounterSet:
    """A set of counters under the names of NVIDIA's driver."""
    counters = {_HUMP.sub("-", name).lower(): value for name, value in amounts.items() if value}
    return CounterSet(
        name=f"{name_gpu(gpu)}-counter-set", counters=counters | {f"memory-slice-{slot}": 1 for slot in slots}
    )
