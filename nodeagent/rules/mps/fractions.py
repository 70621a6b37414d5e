"""Fractions of GPUs enforced by MPS: the daemons for them, and the access of each container.

A GPU with a daemon serves the daemon's clients only, so all fractions of one GPU are enforced by MPS or none is.

Owns the possible GPUs for such fractions, and the arithmetic between a fraction and the limits of a client: they hold
for each process.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from nodeagent.config.schema import Settings
from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Binding, Enforcement, FractionTable
from nodeagent.model.mps import (
    MEMORY_VARIABLE,
    THREADS_VARIABLE,
    MpsAccess,
    MpsLimits,
    MpsPhase,
    MpsState,
)
from nodeagent.rules.mps.access import plan_place, plan_private_access
from nodeagent.rules.mps.daemons import DaemonKind, Wanted, explain_daemon
from nodeagent.rules.mps.limits import MIB, find_most_clients

OWNER_OF_FRACTIONS: Final = "parts"
"""The owner of such daemons in messages for people."""
PREFIX: Final = "part-"
_ALL_THREADS: Final = 100


def name_fraction_daemon(gpu: GpuUuid) -> str:
    """The daemon of the fractions of a GPU."""
    return f"{PREFIX}{gpu}"


def list_clients(table: FractionTable, gpu: GpuUuid) -> Iterator[Binding]:
    """The containers that MPS holds to their fraction of a GPU."""
    return (
        one for one in table.bindings.values() if _is_client(one) and any(fraction.gpu == gpu for fraction in one.parts)
    )


def list_others(table: FractionTable, gpu: GpuUuid) -> Iterator[Binding]:
    """The containers with a fraction of the GPU, but without a daemon."""
    return (
        one
        for one in table.bindings.values()
        if not _is_client(one) and any(fraction.gpu == gpu for fraction in one.parts)
    )


def plan_fraction_daemons(table: FractionTable) -> tuple[Wanted, ...]:
    """A daemon for each GPU with a fraction enforced by MPS."""
    gpus = dict.fromkeys(fraction.gpu for one in table.bindings.values() if _is_client(one) for fraction in one.parts)
    return tuple(
        Wanted(
            name=name_fraction_daemon(gpu),
            kind=DaemonKind.PARTS,
            owner=OWNER_OF_FRACTIONS,
            gpus=(gpu,),
            limits=_find_largest([plan_fraction_limits(one, gpu) for one in list_clients(table, gpu)], gpu),
        )
        for gpu in gpus
    )


def plan_fraction_limits(binding: Binding, gpu: GpuUuid) -> MpsLimits:
    """The limits of each process of a container on a GPU; a fraction without compute has no compute limit."""
    fraction = next(each for each in binding.parts if each.gpu == gpu)
    threads = max(fraction.cores, binding.core_limit or 0)
    return MpsLimits(
        thread_percentage=threads if 0 < threads < _ALL_THREADS else _ALL_THREADS,
        memory_mib={gpu: max(1, fraction.memory_bytes // MIB)},
    )


def plan_fraction_access(settings: Settings, binding: Binding) -> MpsAccess:
    """The access of the container as a client, with the limits of its fraction."""
    (fraction,) = binding.parts
    limits = plan_fraction_limits(binding, fraction.gpu)
    access = plan_private_access(plan_place(settings, name_fraction_daemon(fraction.gpu)))
    own = {
        THREADS_VARIABLE: str(limits.thread_percentage),
        # The GPU is the daemon's only one, and so its first.
        MEMORY_VARIABLE: f"0={limits.memory_mib[fraction.gpu]}M",
    }
    return MpsAccess(environment={**access.environment, **own}, mounts=access.mounts)


def explain_fraction_daemon(gpu: GpuUuid, state: MpsState | None, limits: MpsLimits) -> str:
    """Why a container cannot start with the limits yet; empty where its daemon is ready."""
    daemon = state.find_gpu(gpu) if state is not None else None
    is_own = daemon is None or daemon.name == name_fraction_daemon(gpu)
    if reason := explain_daemon(gpu, state, by_mps=is_own):
        return reason
    if daemon is not None and _find_largest([daemon.limits, limits], gpu) != daemon.limits:
        return "its MPS daemon has yet to take limits that are as large as the part"
    return ""


def explain_foreign_daemon(gpu: GpuUuid, state: MpsState | None) -> str:
    """Why daemons keep a GPU from being given out in fractions; empty where no daemon is in the way."""
    daemon = state.find_gpu(gpu) if state is not None else None
    if daemon is None:
        return ""
    if daemon.name != name_fraction_daemon(gpu):
        return explain_daemon(gpu, state, by_mps=False)
    has_failed = daemon.phase is not MpsPhase.READY and daemon.last_fault
    return f"its MPS daemon is {daemon.phase}: {daemon.reason or daemon.last_fault}" if has_failed else ""


def plan_obstacles(
    gpus: Iterable[Gpu], bindings: Collection[Binding], state: MpsState | None, *, by_mps: bool
) -> dict[GpuUuid, str]:
    """The GPUs where a fraction enforced by MPS (or by other means) is impossible, with the reasons.

    `state` is `None` without a component for daemons.
    """
    clients = Counter(fraction.gpu for one in bindings if _is_client(one) for fraction in one.parts)
    others = {fraction.gpu for one in bindings if not _is_client(one) for fraction in one.parts} if by_mps else ()
    ended = {gpu for daemon in (state.daemons if state is not None else ()) for gpu in daemon.gpus}
    reasons: dict[GpuUuid, str] = {}
    for gpu in gpus:
        most = find_most_clients(gpu) if by_mps else 0
        reason = refuse_neighbour(clients[gpu.uuid], most, by_mps=by_mps, has_others=gpu.uuid in others)
        if reason:
            reasons[gpu.uuid] = reason
        elif not by_mps and gpu.uuid in ended:
            reasons[gpu.uuid] = "its MPS daemon has yet to end"
    return reasons


def refuse_neighbour(clients: int, most: int, *, by_mps: bool, has_others: bool) -> str:
    """Why the present holders of a GPU keep a new container out; empty where MPS is no obstacle.

    Of `most` containers held by MPS to a fraction of the GPU, `clients` are there; `has_others` where a container has
    a fraction, or the whole GPU, without MPS.
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


def _find_largest(limits: list[MpsLimits], gpu: GpuUuid) -> MpsLimits:
    """The limits of the daemon itself: a client without limits of its own gets no more than the largest."""
    return MpsLimits(
        thread_percentage=max(each.thread_percentage or 0 for each in limits),
        memory_mib={gpu: max(each.memory_mib.get(gpu, 0) for each in limits)},
    )
