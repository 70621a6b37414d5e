"""The decisions about devices and parts of GPUs by themselves, each for the first time."""

import gc
import time
from collections.abc import Callable
from random import Random

from msgspec.structs import replace

from nodeagent.components.deviceplugin.advertise import View, plan_list
from nodeagent.config.schema import Settings
from nodeagent.config.sections.sharing import SharedResource, SharingSettings, TimeSlicing
from nodeagent.edge.kubelet.plugin_server import render_devices
from nodeagent.model.gpu import Inventory, PathKind
from nodeagent.rules.offer.devices import Resource
from nodeagent.rules.offer.resources import plan_resources
from nodeagent.rules.placement.place import Demand, place
from nodeagent.rules.placement.prefer import Preference
from nodeagent.rules.placement.space import plan_space
from nodeagent.rules.placement.topology import plan_topology
from tests.bench.rows import Row
from tests.support.gpus import make_gpu, make_inventory


def measure_decisions() -> list[Row]:
    """The pure parts, each for the first time: nothing is remembered from one sample to the next.

    As in the agent, a collection looks through what they make and not through all that was imported.
    """
    gc.freeze()
    return [*_measure_sizes(), *_measure_shares(), *_measure_parts()]


def _tree(left: int, right: int) -> tuple[PathKind, int]:
    """Sixteen GPUs behind an NVSwitch fabric: pairs under switches, four under a bridge, eight on a socket."""
    kinds = ((2, PathKind.BRIDGE), (4, PathKind.BRIDGES), (8, PathKind.NODE), (16, PathKind.SYSTEM))
    return next(path for near, path in kinds if left // near == right // near), 12


def _measure_sizes() -> list[Row]:
    inventory = make_inventory([make_gpu(index) for index in range(16)], _tree)
    (resource,) = plan_resources(inventory, Settings()).resources
    topology, chance = plan_topology(inventory), Random(1)
    ids = [device.id for device in resource.devices]
    worst: list[float] = []
    for size in range(1, 17):
        for free in [16] * 3 + [chance.randint(size, 16) for _ in range(5)]:
            preference = Preference(resource, topology, "distributed")
            available = chance.sample(ids, free)
            worst.append(_milliseconds(lambda: preference.prefer(available, (), size)))  # noqa: B023  called at once
    return [Row("preferred, every size out of 16 GPUs", "ms", worst, limit=5, limit_is_for=1.0)]


def _measure_shares() -> list[Row]:
    inventory = make_inventory([make_gpu(index, numa_node=index // 8) for index in range(16)])
    shared = TimeSlicing(resources=(SharedResource(name="gpu", replicas=100),))
    (resource,) = plan_resources(inventory, Settings(sharing=SharingSettings(timeSlicing=shared))).resources
    preference = Preference(resource, plan_topology(inventory), "distributed")
    ids, chance = [device.id for device in resource.devices], Random(1)
    shuffled = [chance.sample(ids, len(ids)) for _ in range(50)]
    return [
        Row(
            "preferred, 4 of 1,600 shares",
            "ms",
            [_milliseconds(lambda: preference.prefer(available, (), 4)) for available in shuffled],  # noqa: B023  called at once
        ),
        Row(
            "planning and writing a list of 1,600 shares",
            "ms",
            [_milliseconds(lambda: _write_list(resource, inventory)) for _ in range(50)],
            limit=20,
            limit_is_for=0.99,
        ),
    ]


def _measure_parts() -> list[Row]:
    """Any request for whole GPUs or a part of one, on sixteen that are given away in all manners."""
    gpus = [replace(make_gpu(index), memory_total_bytes=80 << 30) for index in range(16)]
    empty, chance, samples = plan_space(make_inventory(gpus, _tree), 256 << 20, withheld={}), Random(1), []
    wholes = [Demand(gpus=count) for count in range(1, 17)]
    parts = [Demand(cores=cores, memory_bytes=cores << 29) for cores in range(1, 100, 3)]
    for demand in [*wholes, *parts] * 10:
        space = empty
        for other in chance.sample([*wholes[:3], *parts], chance.randint(0, 12)):
            space = space.occupy(place(space, other).shares)
        samples.append(_milliseconds(lambda: place(space, demand)))  # noqa: B023  called at once
    return [Row("a part of 16 GPUs chosen, any request", "ms", samples, limit=1, limit_is_for=0.99)]


def _write_list(resource: Resource, inventory: Inventory) -> bytes:
    return render_devices(plan_list(resource, View(inventory, None))).SerializeToString()


def _milliseconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000
