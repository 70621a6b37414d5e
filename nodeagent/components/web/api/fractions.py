"""Fractions of GPUs in the API: holders and their use, the reasons of each choice, and waiting containers."""

from collections.abc import Mapping

from msgspec.structs import replace

from nodeagent.components.web.api.records import PartHolder
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Binding, PartTable
from nodeagent.model.parts import PartReasons
from nodeagent.model.usage import PartUsage, PartUse, UndividedUse
from nodeagent.model.values import Value

PartHolders = Mapping[GpuUuid, tuple[PartHolder, ...]]


class PartRecord(Value, frozen=True):
    """A container with its fractions."""

    binding: Binding
    decided: tuple[str, ...] = ()
    """How its GPUs were chosen, in lines; empty for choices before the agent's start."""
    used: tuple[PartUse, ...] = ()
    """The container's use of each fraction, in the order of the fractions."""
    resources: tuple[str, ...] = ()
    """The resources asked for by the container."""


class WaitingRecord(Value, frozen=True):
    """A container waiting for room."""

    container: str
    """`namespace/pod (container)`."""
    looked_at: tuple[str, ...] = ()
    """Why there is no room, in lines."""


class PartsRecord(Value, frozen=True):
    """All fractions of the node."""

    bound: tuple[PartRecord, ...] = ()
    waiting: tuple[WaitingRecord, ...] = ()
    undivided: tuple[UndividedUse, ...] = ()
    """The common use by several containers of a pod, while there is no telling them apart."""


def list_part_holders(table: PartTable, usage: PartUsage | None) -> PartHolders:
    """The holders of fractions of each GPU."""
    found: dict[GpuUuid, list[PartHolder]] = {}
    for number, uses in _join_uses(table, usage).items():
        binding = table.bindings[number]
        for use in uses:
            holder = PartHolder(
                number=number,
                pod=binding.pod,
                container=binding.container,
                since_seconds=binding.since_seconds,
                use=use,
            )
            found.setdefault(use.gpu, []).append(holder)
    return {gpu: tuple(holders) for gpu, holders in found.items()}


def _join_uses(table: PartTable, usage: PartUsage | None) -> dict[int, tuple[PartUse, ...]]:
    """The fractions of each binding in the journal, with their use as measured last."""
    containers = usage.containers if usage is not None else ()
    measured = {(one.number, part.gpu): part for one in containers for part in one.parts}
    return {
        number: tuple(
            replace(
                measured.get((number, part.gpu)) or PartUse(gpu=part.gpu, index=None, cores=0, memory_bytes=0),
                cores=part.cores,
                memory_bytes=part.memory_bytes,
                cores_max=binding.core_limit,
            )
            for part in binding.parts
        )
        for number, binding in sorted(table.bindings.items())
    }


def record_parts(table: PartTable | None, reasons: PartReasons | None, usage: PartUsage | None = None) -> PartsRecord:
    """The record of all fractions now."""
    known, held = reasons or PartReasons(), table or PartTable()
    uses = _join_uses(held, usage)
    return PartsRecord(
        bound=tuple(
            PartRecord(
                binding=binding,
                decided=known.bound.get(number, ()),
                used=uses[number],
                resources=_list_resources(held, binding),
            )
            for number, binding in held.bindings.items()
        ),
        waiting=tuple(WaitingRecord(container=who, looked_at=lines) for who, lines in sorted(known.waiting.items())),
        undivided=usage.undivided if usage is not None else (),
    )


def _list_resources(table: PartTable, binding: Binding) -> tuple[str, ...]:
    found = (table.reservations.get(number) for number in binding.reservations)
    return tuple(each.resource for each in found if each is not None)
