"""The account of given and free amounts of each GPU, as one immutable value: read by evaluators, changed by grants.

Owns the account of a node's GPUs and the tree over them.

Counts used amounts rather than free ones, so that giving back is the exact inverse of giving, and usage by programs
outside the account is told apart from given fractions.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import GpuFraction
from nodeagent.model.values import Value
from nodeagent.rules.placement.hierarchy import Tree, plan_tree
from nodeagent.rules.placement.topology import plan_topology

CORES: Final = 100
"""The compute of a whole GPU."""


class GpuRoom(Value, frozen=True):
    """A GPU in the account."""

    gpu: GpuUuid
    index: int
    memory_bytes: int
    """The GPU's memory to give out in all."""
    cores_used: int = 0
    memory_used: int = 0
    users: int = 0
    users_max: int | None = None
    """The most shares of the GPU; `None` for any number."""
    foreign_bytes: int = 0
    """Usage by programs without any fraction."""
    foreign: bool = False
    """Whether there are such programs: the GPU cannot be had alone then."""
    processes: int = 0
    withheld: str = ""
    """Why nothing of the GPU may be given now; empty when something may."""

    @property
    def free_cores(self) -> int:
        """Compute not given to anybody."""
        return max(0, CORES - self.cores_used)

    @property
    def free_bytes(self) -> int:
        """Memory neither given nor used."""
        return max(0, self.memory_bytes - self.memory_used - self.foreign_bytes)

    @property
    def is_free(self) -> bool:
        """Whether a container could have the GPU alone."""
        return not (self.users or self.foreign or self.withheld)

    @property
    def is_overcommitted(self) -> bool:
        """Whether more was given than there is; never by the evaluators, but adopted fractions may add up so."""
        return self.cores_used > CORES or self.memory_used > self.memory_bytes

    @property
    def whole(self) -> GpuFraction:
        """All of the GPU."""
        return GpuFraction(gpu=self.gpu, cores=CORES, memory_bytes=self.memory_bytes)


class Space(Value, frozen=True):
    """The account of a node's GPUs; a position is a place in `rooms`."""

    rooms: tuple[GpuRoom, ...]
    """In index order."""
    tree: Tree
    block_bytes: int
    """The unit of comparison of free memory: a difference below one block decides nothing."""

    @property
    def free(self) -> int:
        """The positions of GPUs free for a container alone, as a bit mask."""
        return sum(1 << position for position, room in enumerate(self.rooms) if room.is_free)

    def occupy(self, shares: Iterable[GpuFraction]) -> "Space":
        """The account after the fractions were given; fractions of GPUs unknown to the node change nothing."""
        return self._count(shares, 1)

    def release(self, shares: Iterable[GpuFraction]) -> "Space":
        """The account after the fractions were given back: the inverse of `occupy`.

        Raises:
            ValueError: the fractions were never given.
        """
        return self._count(shares, -1)

    def _count(self, shares: Iterable[GpuFraction], sign: int) -> "Space":
        # Summed up first: a node has few GPUs and hundreds of shares of them.
        sums: dict[GpuUuid, tuple[int, int, int]] = {}
        for share in shares:
            cores, memory, users = sums.get(share.gpu, (0, 0, 0))
            sums[share.gpu] = cores + share.cores, memory + share.memory_bytes, users + 1
        return replace(self, rooms=tuple(_change(room, sign, *sums.get(room.gpu, (0, 0, 0))) for room in self.rooms))


def _change(room: GpuRoom, sign: int, cores: int, memory: int, users: int) -> GpuRoom:
    changed = replace(
        room,
        cores_used=room.cores_used + sign * cores,
        memory_used=room.memory_used + sign * memory,
        users=room.users + sign * users,
    )
    if min(changed.cores_used, changed.memory_used, changed.users) < 0:
        raise ValueError(f"GPU {room.index} is given back more than it was given")
    return changed


def plan_space(
    inventory: Inventory,
    block_bytes: int,
    *,
    withheld: Mapping[GpuUuid, str],
    users_max: int | None = None,
    memory_ratio: float = 1.0,
    foreign: Mapping[GpuUuid, int] | None = None,
) -> Space:
    """The account before anything is given.

    Withheld GPUs have their place in the tree too. A `memory_ratio` of more than 1 promises more than there is. No
    container gets a GPU alone that is in `foreign`: programs without any fraction use so many bytes of it.
    """
    used = foreign or {}
    gpus = tuple(sorted(inventory.gpus, key=lambda gpu: (gpu.index, gpu.uuid)))
    rooms = tuple(
        GpuRoom(
            gpu=gpu.uuid,
            index=gpu.index,
            memory_bytes=int(gpu.memory_total_bytes * memory_ratio),
            users_max=users_max,
            withheld=withheld.get(gpu.uuid, ""),
            foreign_bytes=used.get(gpu.uuid, 0),
            foreign=gpu.uuid in used,
        )
        for gpu in gpus
    )
    return Space(rooms=rooms, tree=_plan_gpu_tree(replace(inventory, gpus=gpus)), block_bytes=block_bytes)


def _plan_gpu_tree(inventory: Inventory) -> Tree:
    """The GPUs joined from the best link down; where links form no hierarchy, the nearest one that is nowhere below."""
    scores = plan_topology(inventory).scores
    return plan_tree(scores, (1 << len(scores)) - 1) if scores else Tree()


def find_positions(space: Space, gpus: Sequence[GpuUuid]) -> int:
    """The positions of the given GPUs as a bit mask; GPUs unknown to the node are left out."""
    return sum(1 << position for position, room in enumerate(space.rooms) if room.gpu in gpus)
