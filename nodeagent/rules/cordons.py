"""The cordons that the node's annotations and commands ask for, and which of them are in force.

Owns the form of the annotations. An annotation is read whole or not at all: a misspelt annotation changes nothing, so
that no slip of the pen opens a GPU. A source without a word about a GPU lifts its own cordon of the GPU, and leaves the
cordons of other sources.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, assert_never

import msgspec
from msgspec.structs import replace

from nodeagent.model.cordons import (
    CORDON_ANNOTATION,
    HAMI_CORDON_ANNOTATION,
    Cordon,
    CordonSource,
    CordonTable,
    check_reason,
    parse_until,
    render_until,
)
from nodeagent.model.gpu import Gpu, Inventory
from nodeagent.model.ids import GpuUuid
from nodeagent.model.values import Value
from nodeagent.rules.selectors import find_named

_ENTRIES_MAX: Final = 256
_NAME_LENGTH: Final = 80
_GPU_UUID: Final = "GPU-"
_EXAMPLE: Final = '[{"gpu": "3", "reason": "fan", "until": "2031-05-01T08:00:00Z"}]'


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of the agent's own annotation as written."""

    gpu: str | int
    reason: str
    until: str | None = None


_DECODER: Final = msgspec.json.Decoder(list[_Entry])


class AskedCordon(Value, frozen=True):
    """A cordon that a source asks for."""

    gpu: str
    """The GPU as the source names it."""
    reason: str = ""
    until_seconds: float | None = None
    who: str = ""


class CordonPlan(Value, frozen=True):
    """The cordons of a source from now on, and what is wrong with the asked ones."""

    cordons: tuple[Cordon, ...] = ()
    problems: tuple[str, ...] = ()
    """The refused entries of the source and their remedies, a sentence each."""
    over: tuple[str, ...] = ()
    """Asked cordons whose end has come, a sentence each."""


def parse_annotation(text: str) -> tuple[AskedCordon, ...]:
    """The cordons of the agent's own annotation; an absent one asks for nothing.

    Raises:
        ValueError: What is wrong, with the entry, the key, the value and the remedy.
    """
    if not text.strip():
        return ()
    try:
        entries = _DECODER.decode(text)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{error}: write a JSON list such as {_EXAMPLE}") from error
    if len(entries) > _ENTRIES_MAX:
        raise ValueError(f"it has {len(entries)} entries, and {_ENTRIES_MAX} are the most")
    return tuple(_read_entry(place, entry) for place, entry in enumerate(entries))


def _read_entry(place: int, entry: _Entry) -> AskedCordon:
    try:
        reason, until = check_reason(entry.reason), None if entry.until is None else parse_until(entry.until)
    except ValueError as error:
        raise ValueError(f"entry [{place}]: {error}") from error
    return AskedCordon(gpu=str(entry.gpu).strip(), reason=reason, until_seconds=until)


def parse_hami(text: str) -> tuple[AskedCordon, ...]:
    """The GPUs of HAMi's annotation, UUIDs with commas between; devices of other vendors are left out."""
    names = dict.fromkeys(name.strip() for name in text.split(","))
    return tuple(AskedCordon(gpu=name) for name in names if name.startswith(_GPU_UUID))


def plan_cordons(
    source: CordonSource, asked: Iterable[AskedCordon], inventory: Inventory, kept: Sequence[Cordon], now_seconds: float
) -> CordonPlan:
    """The cordons of a source; a GPU that does not answer keeps the cordon by which it was known."""
    cordons: list[Cordon] = []
    problems: list[str] = []
    over: list[str] = []
    for one in asked:
        if one.until_seconds is not None and one.until_seconds <= now_seconds:
            over.append(f"GPU {one.gpu[:_NAME_LENGTH]}: {render_until(one.until_seconds)} is past, and cordons nothing")
            continue
        gpu, problem = _find_gpu(one.gpu, inventory)
        gpus = [gpu] if gpu is not None else _find_known(one.gpu, kept)
        cordons += (_render(source, each, one) for each in gpus)
        if not gpus:
            problems.append(problem)
    return CordonPlan(cordons=tuple(dict.fromkeys(cordons)), problems=tuple(problems), over=tuple(over))


def plan_command(asked: AskedCordon, inventory: Inventory, kept: Sequence[Cordon], now_seconds: float) -> CordonPlan:
    """The cordons by commands after a further command, which replaces an earlier one for the same GPU."""
    plan = plan_cordons(CordonSource.COMMAND, (asked,), inventory, kept, now_seconds)
    meant = {each.gpu for each in plan.cordons}
    return replace(plan, cordons=(*(each for each in kept if each.gpu not in meant), *plan.cordons))


def plan_uncordon(name: str, inventory: Inventory, kept: Sequence[Cordon]) -> tuple[GpuUuid | None, tuple[Cordon, ...]]:
    """The GPU that a person names, if any, and the cordons by commands without it."""
    gpu, _ = _find_gpu(name, inventory)
    known = [gpu] if gpu is not None else _find_known(name, kept)
    return next(iter(known), None), tuple(each for each in kept if each.gpu not in known)


def plan_repairs(
    asked: Mapping[GpuUuid, str],
    inventory: Inventory,
    kept: Iterable[Cordon],
    now_seconds: float,
    source: CordonSource = CordonSource.REPAIR,
) -> tuple[Cordon, ...]:
    """The cordons of repairs, or of an upgrade of the driver, each with the time since which the cordon stands."""
    since = {one.gpu: one.since_seconds for one in kept}
    names = {gpu.uuid: str(gpu.index) for gpu in inventory.gpus}
    return tuple(
        Cordon(
            gpu=gpu,
            source=source,
            named=names.get(gpu, gpu),
            reason=reason,
            since_seconds=since.get(gpu, now_seconds),
        )
        for gpu, reason in sorted(asked.items())
    )


def drop_over(table: CordonTable, now_seconds: float) -> dict[CordonSource, tuple[Cordon, ...]]:
    """The sources with cordons whose end has come, with their other cordons; the brake opens by proof, not by time."""
    return {
        source: tuple(each for each in cordons if not each.is_over(now_seconds))
        for source, cordons in table.by_source.items()
        if source is not CordonSource.BRAKE and any(each.is_over(now_seconds) for each in cordons)
    }


def find_next_end(table: CordonTable, now_seconds: float) -> float | None:
    """The nearest end of a cordon in force; `None` without any."""
    return min((one.until_seconds for one in table.list_in_force(now_seconds) if one.until_seconds), default=None)


def explain_opening(cordon: Cordon, index: int) -> str:
    """What opens the GPU of this index to new pods, as far as this cordon keeps them away."""
    match cordon.source:
        case CordonSource.COMMAND:
            return f"`nodeagent gpu uncordon {index}`"
        case CordonSource.ANNOTATION:
            return f"take {cordon.named} out of the node's annotation {CORDON_ANNOTATION}"
        case CordonSource.HAMI:
            return f"take {cordon.named} out of the node's annotation {HAMI_CORDON_ANNOTATION}"
        case CordonSource.BRAKE:
            pause = "" if cordon.until_seconds is None else f" after {render_until(cordon.until_seconds)}"
            return f"a single pod that lasts{pause}; `nodeagent gpu uncordon {index}` opens GPU {index} at once"
        case CordonSource.REPAIR:
            return f"the end of the repair: `nodeagent repairs explain {index}`"
        case CordonSource.DRIVER:
            return "the end of the driver's upgrade: `nodeagent driver status`"
    assert_never(cordon.source)


def _find_gpu(name: str, inventory: Inventory) -> tuple[GpuUuid | None, str]:
    """The GPU of a name, or what is wrong with the name."""
    gpu = find_named(inventory, name)
    if gpu is None:
        return (
            None,
            f"no GPU {name[:_NAME_LENGTH]!r} on this node: take an index or UUID of `nodeagent gpu list`",
        )
    if not _is_whole(name, gpu):
        return None, f"{name} is a MIG device, and a cordon is of a whole GPU: name {gpu.uuid}"
    return gpu.uuid, ""


def _is_whole(name: str, gpu: Gpu) -> bool:
    return name in {gpu.uuid, gpu.pci.address, str(gpu.index)}


def _find_known(name: str, kept: Sequence[Cordon]) -> list[GpuUuid]:
    """The GPUs cordoned before under a name that means no GPU now."""
    return list(dict.fromkeys(each.gpu for each in kept if name in {each.named, each.gpu}))


def _render(source: CordonSource, gpu: GpuUuid, asked: AskedCordon) -> Cordon:
    return Cordon(
        gpu=gpu,
        source=source,
        named=asked.gpu,
        reason=asked.reason,
        until_seconds=asked.until_seconds,
        who=asked.who,
    )


ANNOTATIONS: Final = {
    CordonSource.ANNOTATION: (CORDON_ANNOTATION, parse_annotation),
    CordonSource.HAMI: (HAMI_CORDON_ANNOTATION, parse_hami),
}
"""The annotation of each source, and its reader."""
