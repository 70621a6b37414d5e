"""Which event led to which: chains of causes, each from its beginning; pure.

Owns the order in which a chain is told: what led to something stands before it, everything that follows from one event
under it. Refuses to guess: what nobody named as a cause begins a chain of its own, however near in time it was.
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
"""How many allocations and their ends are told: they have a table of their own, and would push out the rest."""
ROUTINE = frozenset({"DevicesAllocated", "DevicesFreed"})
ALIKE = frozenset({"GpuAppeared", "GpuVanished", "VerdictChanged", "MigLayoutChanged"})
"""What happens to many devices at once is told once for all of them."""
NAMED = re.compile(r"(GPU \d+(?::\d+ \(\S+\)| \(gone\))?) (.+)")
NAMES_TOLD = 3
NAMING = ("gpu", "device", "devices")
"""Fields by which an event says what it is about."""
SUMMARIES = frozenset({"Inventory", "HealthReport"})
"""States that are told where they begin a chain; inside one, the facts beside them say more."""


class Link(Value, frozen=True):
    """One event in words, and how many led to it."""

    seq: int
    time_seconds: float
    text: str
    depth: int = 0


class Chain(Value, frozen=True):
    """One beginning and what followed from it, in the order in which it is told."""

    links: tuple[Link, ...]
    left_out: int = 0
    """How many of the later ones there is no room for."""

    @property
    def is_before_restart(self) -> bool:
        """Whether an earlier life of the agent told it: its events count up to -1."""
        return self.links[0].seq < 0


class Told(NamedTuple):
    """An event as far as chains need it."""

    seq: int
    cause: int | None
    time_seconds: float
    type: str
    text: str


def tell_history(history: Iterable[Envelope[Any]], names: Names) -> list[Told]:
    """The bus's history in words."""
    teller = Teller(names)
    return [Told(each.seq, each.cause, each.time, type(each.value).__name__, teller.tell(each)) for each in history]


def tell_records(records: Iterable[EventRecord]) -> list[Told]:
    """What the API gave, whose words are made already."""
    return [Told(each.seq, each.cause, each.time_seconds, each.type, each.text) for each in records]


def find_about(events: Iterable[tuple[int, Any]], own: AbstractSet[str]) -> frozenset[int]:
    """The events that name one of these devices: values of the model, or the same as plain JSON."""
    return frozenset(seq for seq, value in events if not own.isdisjoint(_list_named(value)))


def _list_named(value: Any) -> set[str]:
    known = value if isinstance(value, dict) else {name: getattr(value, name, None) for name in NAMING}
    named = {str(known[name]) for name in ("gpu", "device") if isinstance(known.get(name), str)}
    devices = known.get("devices") or ()
    return named | {find_uuid(each) for each in devices if isinstance(each, str)}


def build_chains(
    events: Iterable[Told],
    limit: int = PAGE_CHAINS,
    *,
    about: AbstractSet[int] | None = None,
    length: int = CHAIN_LENGTH,
    routine: int = ROUTINE_MAX,
) -> tuple[Chain, ...]:
    """The last chains, the one that began last first; with `about`, those that hold one of these events.

    An event that says nothing to a person hands its own cause on to what it led to.
    """
    parents: dict[int, int | None] = {}
    said: dict[str, str] = {}
    told: dict[int, Told] = {}
    # Summaries that say what the last one said: worth a word only for what followed from them.
    repeated: set[int] = set()
    children: dict[int | None, list[int]] = {}
    for each in events:
        parents[each.seq] = each.cause
        parent = _find_told(parents, told.keys(), each.seq)
        is_summary = each.type in SUMMARIES
        is_told = bool(each.text) and not (is_summary and parent is not None)
        if is_summary and each.text == said.get(each.type):
            repeated.add(each.seq)
        said[each.type] = each.text
        if is_told:
            told[each.seq] = each
            children.setdefault(parent, []).append(each.seq)
    began = [root for root in children.get(None, ()) if root not in repeated or root in children]
    walks = {root: _walk(children, root) for root in began}
    roots = [root for root, walk in walks.items() if about is None or any(seq in about for seq, _ in walk)]
    chosen = _choose(told, roots, routine)[:limit]
    return tuple(_build_chain([(told[seq], depth) for seq, depth in walks[root]], length) for root in chosen)


def _build_chain(walk: Sequence[tuple[Told, int]], length: int) -> Chain:
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


def _split_name(event: Told) -> tuple[str, str]:
    """The device that the sentence begins with, and what it says of it, where others may say the same of others."""
    found = NAMED.fullmatch(event.text) if event.type in ALIKE else None
    return (found[1], found[2]) if found is not None else ("", event.text)


def _join_names(names: Sequence[str]) -> str:
    if len(names) <= NAMES_TOLD:
        return ", ".join(names)
    return f"{names[0]}, {names[1]} and {len(names) - 2} more"


def _choose(told: Mapping[int, Told], roots: Sequence[int], routine_max: int) -> list[int]:
    """The roots, newest first, with few of what happens all day."""
    chosen: list[int] = []
    routine = 0
    for root in reversed(roots):
        is_routine = told[root].type in ROUTINE
        routine += is_routine
        if not is_routine or routine <= routine_max:
            chosen.append(root)
    return chosen


def _find_told(parents: Mapping[int, int | None], told: AbstractSet[int], seq: int) -> int | None:
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
