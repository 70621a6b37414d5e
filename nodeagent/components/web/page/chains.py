"""Chains of causes between events, each from its beginning; pure.

Owns the order of a chain: a cause stands before its effects, all effects of an event below the event. Refuses to
guess: an event without a named cause begins a chain, however near in time to others.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from msgspec.structs import replace

from nodeagent.components.web.api.records import EventRecord
from nodeagent.components.web.page.event_words import Teller
from nodeagent.core.values import Envelope
from nodeagent.model.values import Value
from nodeagent.rules.ids import Names, find_uuid

PAGE_CHAINS = 12
CHAIN_LENGTH = 16
ROUTINE_MAX = 4
"""How many allocations and their ends are shown: they have a table of their own, and would push out the rest."""
ROUTINE = frozenset({"DevicesAllocated", "DevicesFreed"})
ALIKE = frozenset({"GpuAppeared", "GpuVanished", "VerdictChanged", "MigLayoutChanged"})
"""Events of many devices at once are shown once for all devices."""
NAMED = re.compile(r"(GPU \d+(?::\d+ \(\S+\)| \(gone\))?) (.+)")
NAMES_LISTED = 3
NAMING = ("gpu", "device", "devices")
"""Fields with the subject of an event."""
SUMMARIES = frozenset({"Inventory", "HealthReport"})
"""States shown at the beginning of a chain; inside a chain, the facts beside them say more."""


class Link(Value, frozen=True):
    """An event in words, with its depth in the chain."""

    seq: int
    time_seconds: float
    text: str
    depth: int = 0


class Chain(Value, frozen=True):
    """A first event and its effects, in the order shown."""

    links: tuple[Link, ...]
    left_out: int = 0
    """How many later links are left out for want of room."""

    @property
    def is_before_restart(self) -> bool:
        """Whether the chain is of an earlier process of the agent, whose events count up to -1."""
        return self.links[0].seq < 0


class ChainEvent(NamedTuple):
    """The fields of an event that chains need."""

    seq: int
    cause: int | None
    time_seconds: float
    type: str
    text: str


def describe_history(history: Iterable[Envelope[Any]], names: Names) -> list[ChainEvent]:
    """The bus's history in words."""
    teller = Teller(names)
    return [ChainEvent(each.seq, each.cause, each.time, each.type_name, teller.tell(each)) for each in history]


def describe_records(records: Iterable[EventRecord]) -> list[ChainEvent]:
    """Records of the API, with their words already made."""
    return [ChainEvent(each.seq, each.cause, each.time_seconds, each.type, each.text) for each in records]


def find_about(events: Iterable[tuple[int, Any]], own: AbstractSet[str]) -> frozenset[int]:
    """The events about any of these devices: values of the model, or the same as plain JSON."""
    return frozenset(seq for seq, value in events if not own.isdisjoint(_list_named(value)))


def _list_named(value: Any) -> set[str]:
    known = value if isinstance(value, dict) else {name: getattr(value, name, None) for name in NAMING}
    named = {str(known[name]) for name in ("gpu", "device") if isinstance(known.get(name), str)}
    devices = known.get("devices") or ()
    return named | {find_uuid(each) for each in devices if isinstance(each, str)}


def build_chains(
    events: Iterable[ChainEvent],
    limit: int = PAGE_CHAINS,
    *,
    about: AbstractSet[int] | None = None,
    length: int = CHAIN_LENGTH,
) -> tuple[Chain, ...]:
    """The last chains, the latest beginning first; with `about`, chains with any of these events.

    An event without words hands its own cause on to its effects.
    """
    parents: dict[int, int | None] = {}
    said: dict[str, str] = {}
    told: dict[int, ChainEvent] = {}
    # Summaries equal to the summary before: shown only for their effects.
    repeated: set[int] = set()
    children: dict[int | None, list[int]] = {}
    for each in events:
        parents[each.seq] = each.cause
        parent = _find_listed_pod(parents, told.keys(), each.seq)
        is_summary = each.type in SUMMARIES
        is_withdrawn = bool(each.text) and not (is_summary and parent is not None)
        if is_summary and each.text == said.get(each.type):
            repeated.add(each.seq)
        said[each.type] = each.text
        if is_withdrawn:
            told[each.seq] = each
            children.setdefault(parent, []).append(each.seq)
    began = [root for root in children.get(None, ()) if root not in repeated or root in children]
    walks = {root: _walk(children, root) for root in began}
    roots = [root for root, walk in walks.items() if about is None or any(seq in about for seq, _ in walk)]
    chosen = _choose(told, roots)[:limit]
    return tuple(_build_chain([(told[seq], depth) for seq, depth in walks[root]], length) for root in chosen)


def _build_chain(walk: Sequence[tuple[ChainEvent, int]], length: int) -> Chain:
    links: list[Link] = []
    alike: list[str] = []
    for at, (each, depth) in enumerate(walk):
        name, rest = _split_name(each)
        before = walk[at - 1] if at else None
        is_alike = bool(alike) and before is not None and before[1] == depth and _split_name(before[0])[1] == rest
        if name and is_alike:
            alike.append(name)
            links[-1] = replace(links[-1], text=f"{_join_names(alike)} {rest}")
        else:
            alike = [name] if name else []
            links.append(Link(seq=each.seq, time_seconds=each.time_seconds, text=each.text, depth=depth))
    return Chain(links=tuple(links[:length]), left_out=max(0, len(links) - length))


def _split_name(event: ChainEvent) -> tuple[str, str]:
    """The device at the beginning of the sentence, and the rest, for events common to many devices."""
    found = NAMED.fullmatch(event.text) if event.type in ALIKE else None
    return (found[1], found[2]) if found is not None else ("", event.text)


def _join_names(names: Sequence[str]) -> str:
    if len(names) <= NAMES_LISTED:
        return ", ".join(names)
    return f"{names[0]}, {names[1]} and {len(names) - 2} more"


def _choose(told: Mapping[int, ChainEvent], roots: Sequence[int]) -> list[int]:
    """The roots, newest first, with few routine events."""
    chosen: list[int] = []
    routine = 0
    for root in reversed(roots):
        is_routine = told[root].type in ROUTINE
        routine += is_routine
        if not is_routine or routine <= ROUTINE_MAX:
            chosen.append(root)
    return chosen


def _find_listed_pod(parents: Mapping[int, int | None], told: AbstractSet[int], seq: int) -> int | None:
    cause = parents.get(seq)
    while cause is not None and cause not in told:
        cause = parents.get(cause)
    return cause


def _walk(children: Mapping[int | None, Sequence[int]], root: int) -> list[tuple[int, int]]:
    """Depth first, without recursion: a storm may be longer than Python's stack."""
    found, waiting = [], [(root, 0)]
    while waiting:
        seq, depth = waiting.pop()
        found.append((seq, depth))
        waiting.extend((child, depth + 1) for child in reversed(children.get(seq, ())))
    return found
