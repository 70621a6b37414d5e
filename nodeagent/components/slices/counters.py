"""What the parts of a GPU take from one another, so that a scheduler can promise a part before it is made.

Owns the sets of counters: one for each GPU that is cut on demand, with everything that its profiles are made of and a
counter for each slot of its memory. Two devices of a GPU whose needs do not go together are never both allocated.
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
    """Everything that there is to be taken from a GPU."""
    ends = (place.start + place.profile.placement_size for place in list_places(gpu))
    return _make_set(gpu, count_most(gpu), range(max(ends, default=0)))


def count_need(device: NamedDevice) -> CounterSet:
    """What this device takes: all of the GPU, or what its place has."""
    place = device.place
    if place is None:
        return count_gpu(device.gpu)
    return _make_set(device.gpu, count_place(place), range(place.start, place.start + place.profile.placement_size))


def _make_set(gpu: Gpu, amounts: Mapping[str, int], slots: range) -> CounterSet:
    """By the names that NVIDIA's driver gives set and counters."""
    counters = {_HUMP.sub("-", name).lower(): value for name, value in amounts.items() if value}
    return CounterSet(
        name=f"{name_gpu(gpu)}-counter-set", counters=counters | {f"memory-slice-{slot}": 1 for slot in slots}
    )
