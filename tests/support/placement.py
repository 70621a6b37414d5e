"""Nodes and accounts for tests of where parts of GPUs go."""

from collections.abc import Mapping

from msgspec.structs import replace

from nodeagent.model.gpu import Gpu, Inventory, PathKind
from nodeagent.model.journal import GpuFraction
from nodeagent.rules.placement.space import CORES, Space, plan_space
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory

GIB = 1 << 30
BLOCK = 256 << 20


def six_paths(left: int, right: int) -> tuple[PathKind, int]:
    """Three pairs behind a switch each; two of the pairs behind one host bridge."""
    if left // 2 == right // 2:
        return PathKind.BRIDGE, 0
    return (PathKind.HOST_BRIDGE if right < 4 else PathKind.NODE), 0


def eight_paths(left: int, right: int) -> tuple[PathKind, int]:
    """Pairs behind a switch, quads behind several, a quad on each socket."""
    if left // 2 == right // 2:
        return PathKind.BRIDGE, 0
    return (PathKind.BRIDGES if left // 4 == right // 4 else PathKind.SYSTEM), 0


def make_sized(count: int, memory_bytes: int = 32 * GIB) -> list[Gpu]:
    return [replace(make_gpu(index), memory_total_bytes=memory_bytes) for index in range(count)]


def six() -> Inventory:
    return make_inventory(make_sized(6), six_paths)


def eight() -> Inventory:
    return make_inventory(make_sized(8), eight_paths)


def account(inventory: Inventory, used: Mapping[int, tuple[int, int]] | None = None) -> Space:
    """What is given: cores and GiB by index; 100 cores are the whole GPU."""
    space = plan_space(inventory, BLOCK, withheld={})
    for index, (cores, gibibytes) in (used or {}).items():
        room = space.rooms[index]
        share = (
            room.whole
            if cores >= CORES
            else GpuFraction(gpu=gpu_uuid(index), cores=cores, memory_bytes=gibibytes * GIB)
        )
        space = space.occupy([share])
    return space


WHOLE = (CORES, 0)
