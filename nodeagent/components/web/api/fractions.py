"""Fractions of GPUs in the API: holders and their use, the reasons of each choice, and waiting containers."""

from collections.abc import Mapping

from msgspec.structs import replace

from nodeagent.components.web.api.records import FractionHolder
from nodeagent.model.fractions import FractionDecisions
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Binding, FractionTable
from nodeagent.model.usage import FractionUsage, FractionUse, UndividedUse
from nodeagent.model.values import Value

FractionHolders = Mapping[GpuUuid, tuple[FractionHolder, ...]]


class ContainerFractionsRecord(Value, frozen=True):
    """A container with its fractions."""

    binding: Binding
    decided: tuple[str, ...] = ()
    """How its GPUs were chosen, in lines; empty for choices before the agent's start."""
    used: tuple[FractionUse, ...] = ()
    """The container's use of each fraction, in the order of the fractions."""
    resources: tuple[str, ...] = ()
    """The resources asked for by the container."""


class WaitingRecord(Value, frozen=True):
    """A container waiting for room."""

    container: str
    """`namespace/pod (container)`."""
    looked_at: tuple[str, ...] = ()
    """Why there is no room, in lines."""


class FractionsRecord(Value, frozen=True):
    """All fractions of the node."""

    bound: tuple[ContainerFractionsRecord, ...] = ()
    waiting: tuple[WaitingRecord, ...] = ()
    undivided: tuple[UndividedUse, ...] = ()
    """The common use by several containers of a pod, while there is no telling them apart."""


def list_fraction_holders(table: FractionTable, usage: FractionUsage | None) -> FractionHolders:
    """The holders of fractions of each GPU."""
    found: dict[GpuUuid, list[FractionHolder]] = {}
    for number, uses in _join_uses(table, usage).items():
        binding = table.bindings[number]
        for use in uses:
            holder = FractionHolder(
                number=number,
                pod=binding.pod,
                container=binding.container,
                since_seconds=binding.since_seconds,
                use=use,
            )
            found.setdefault(use.gpu, []).append(holder)
    return {gpu: tuple(holders) for gpu, holders in found.items()}


def _join_uses(table: FractionTable, usage: FractionUsage | None) -> dict[int, tuple[FractionUse, ...]]:
    """The fractions of each binding in the journal, with their use as measured last."""
    containers = usage.containers if usage is not None else ()
    measured = {(one.number, part.gpu): part for one in containers for part in one.parts}
    return {
        number: tuple(
            replace(
                measured.get((number, part.gpu)) or FractionUse(gpu=part.gpu, index=None, cores=0, memory_bytes=0),
                cores=part.cores,
                memory_bytes=part.memory_bytes,
                cores_max=binding.core_limit,
            )
            for part in binding.parts
        )
        for number, binding in sorted(table.bindings.items())
    }


def record_fractions(
    table: FractionTable | None, reasons: FractionDecisions | None, usage: FractionUsage | None = None
) -> FractionsRecord:
    """The record of all fractions now."""
    known, held = reasons or FractionDecisions(), table or FractionTable()
    uses = _join_uses(held, usage)
    return FractionsRecord(
        bound=tuple(
            ContainerFractionsRecord(
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


def _list_resources(table: FractionTable, binding: Binding) -> tuple[str, ...]:
    found = (table.reservations.get(number) for number in binding.reservations)
    return tuple(each.resource for each in found if each is not None)
