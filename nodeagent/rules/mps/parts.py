"""Parts of GPUs to which MPS holds containers: the daemons that they call for, and what each container is told.

A GPU that has a daemon is nobody's who does not go through it, so all parts of one GPU are held by MPS or none is.
Owns where such parts can be, and the arithmetic between a part and the limits of a client: each process has them.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from nodeagent.config.schema import Settings
from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Binding, Enforcement, PartTable
from nodeagent.model.mps import MpsAccess, MpsDaemon, MpsLimits, MpsPhase, MpsState
from nodeagent.rules.mps.access import plan_place, plan_private_access
from nodeagent.rules.mps.daemons import DaemonKind, Wanted
from nodeagent.rules.mps.limits import MIB, find_most_clients

OWNER_OF_PARTS: Final = "parts"
"""What such daemons serve, as people are told."""
PREFIX: Final = "part-"
THREADS_VARIABLE: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MEMORY_VARIABLE: Final = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
_ALL_THREADS: Final = 100


def name_part_daemon(gpu: GpuUuid) -> str:
    """The daemon of the parts of a GPU."""
    return f"{PREFIX}{gpu}"


def list_clients(table: PartTable, gpu: GpuUuid) -> Iterator[Binding]:
    """The containers that MPS holds to their part of a GPU."""
    return (one for one in table.bindings.values() if _is_client(one) and any(part.gpu == gpu for part in one.parts))


def list_others(table: PartTable, gpu: GpuUuid) -> Iterator[Binding]:
    """Those that have a part of it and do not go through a daemon."""
    return (
        one for one in table.bindings.values() if not _is_client(one) and any(part.gpu == gpu for part in one.parts)
    )


def plan_part_daemons(table: PartTable) -> tuple[Wanted, ...]:
    """One for each GPU of which somebody has such a part."""
    gpus = dict.fromkeys(part.gpu for one in table.bindings.values() if _is_client(one) for part in one.parts)
    return tuple(
        Wanted(
            name=name_part_daemon(gpu),
            kind=DaemonKind.PARTS,
            owner=OWNER_OF_PARTS,
            gpus=(gpu,),
            limits=_find_largest([plan_part_limits(one, gpu) for one in list_clients(table, gpu)], gpu),
        )
        for gpu in gpus
    )


def plan_part_limits(binding: Binding, gpu: GpuUuid) -> MpsLimits:
    """Those of each process of a container on one of its GPUs; a part without compute has no limit of that."""
    part = next(each for each in binding.parts if each.gpu == gpu)
    threads = max(part.cores, binding.core_limit or 0)
    return MpsLimits(
        thread_percentage=threads if 0 < threads < _ALL_THREADS else _ALL_THREADS,
        memory_mib={gpu: max(1, part.memory_bytes // MIB)},
    )


def plan_part_access(settings: Settings, binding: Binding) -> MpsAccess:
    """What the container needs in order to be a client, and by which it is held to its part."""
    (part,) = binding.parts
    limits = plan_part_limits(binding, part.gpu)
    access = plan_private_access(plan_place(settings, name_part_daemon(part.gpu)))
    own = {
        THREADS_VARIABLE: str(limits.thread_percentage),
        # The daemon has this one GPU, which it counts as its first.
        MEMORY_VARIABLE: f"0={limits.memory_mib[part.gpu]}M",
    }
    return MpsAccess(environment={**access.environment, **own}, mounts=access.mounts)


def explain_part_daemon(gpu: GpuUuid, state: MpsState | None, limits: MpsLimits) -> str:
    """Why a container cannot start with these limits yet; empty where its daemon is ready for it."""
    if state is None:
        return "nobody looks after MPS daemons (yet): see `nodeagent status`"
    daemon = _find_own(gpu, state)
    if daemon is None:
        return explain_foreign_daemon(gpu, state) or "its MPS daemon is not started yet"
    if daemon.phase is not MpsPhase.READY:
        return f"its MPS daemon is {daemon.phase}: {daemon.reason or 'it has not said that it is ready'}"
    if _find_largest([daemon.limits, limits], gpu) != daemon.limits:
        return "its MPS daemon has yet to take limits that are as large as the part"
    return ""


def explain_foreign_daemon(gpu: GpuUuid, state: MpsState | None) -> str:
    """Why nothing of a GPU can be given in parts for the sake of daemons; empty where none is in the way of it."""
    daemon = state.find_gpu(gpu) if state is not None else None
    if daemon is None:
        return ""
    if daemon.name != name_part_daemon(gpu):
        return f"its MPS daemon has yet to end: {daemon.reason or daemon.phase}"
    has_failed = daemon.phase is not MpsPhase.READY and daemon.last_fault
    return f"its MPS daemon is {daemon.phase}: {daemon.reason or daemon.last_fault}" if has_failed else ""


def plan_obstacles(
    gpus: Iterable[Gpu], bindings: Collection[Binding], state: MpsState | None, *, by_mps: bool
) -> dict[GpuUuid, str]:
    """The GPUs of which no part can be had that is held by MPS, or none that is not, and why.

    Args:
        gpus: those that are given in parts.
        bindings: all that have parts.
        state: the daemons; `None` where nobody looks after any.
        by_mps: whether MPS is to hold the part.
    """
    clients = Counter(part.gpu for one in bindings if _is_client(one) for part in one.parts)
    others = {part.gpu for one in bindings if not _is_client(one) for part in one.parts} if by_mps else ()
    ended = {gpu for daemon in (state.daemons if state is not None else ()) for gpu in daemon.gpus}
    reasons: dict[GpuUuid, str] = {}
    for gpu in gpus:
        reason = refuse_neighbour(
            clients[gpu.uuid], find_most_clients(gpu), by_mps=by_mps, has_others=gpu.uuid in others
        )
        if reason:
            reasons[gpu.uuid] = reason
        elif not by_mps and gpu.uuid in ended:
            reasons[gpu.uuid] = "its MPS daemon has yet to end"
    return reasons


def refuse_neighbour(clients: int, most: int, *, by_mps: bool, has_others: bool) -> str:
    """Why somebody new gets no part of a GPU for the sake of those who have one; empty where MPS is in nobody's way.

    Args:
        clients: how many containers MPS holds to a part of it.
        most: how many it can hold.
        by_mps: whether MPS is to hold the new one.
        has_others: whether anybody has a part, or all of it, who is not held by MPS.
    """
    if not by_mps:
        return "its parts are held by MPS, and nobody gets past its daemon" if clients else ""
    if has_others:
        return "somebody has it or a part of it who is not held by MPS"
    if not most:
        return "MPS holds nobody to a part of a GPU that came before Volta"
    return f"MPS has {most} clients of it at most" if clients >= most else ""


def _is_client(binding: Binding) -> bool:
    return binding.enforcement is Enforcement.MPS


def _find_own(gpu: GpuUuid, state: MpsState) -> MpsDaemon | None:
    daemon = state.find_gpu(gpu)
    return daemon if daemon is not None and daemon.name == name_part_daemon(gpu) else None


def _find_largest(limits: list[MpsLimits], gpu: GpuUuid) -> MpsLimits:
    """What the daemon itself allows: a client that does not say how much it may use gets no more than the largest."""
    return MpsLimits(
        thread_percentage=max(each.thread_percentage or 0 for each in limits),
        memory_mib={gpu: max(each.memory_mib.get(gpu, 0) for each in limits)},
    )
