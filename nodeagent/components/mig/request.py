"""Which layout is asked for, by whom, and the stored request over restarts; pure.

Owns the order: the last word counts, by label or by a person; without either the configuration.
Refuses to take silence for a request: a removed label asks for nothing, and changes nothing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import field
from msgspec.structs import replace

from nodeagent.config.sections.allocation_modes import ALL
from nodeagent.config.sections.mig import LayoutEntry
from nodeagent.model.cluster import MIG_CONFIG_LABEL
from nodeagent.model.events import ConfigurationReloaded, GpuAppeared
from nodeagent.model.gpu import Gpu, Inventory
from nodeagent.model.ids import GpuUuid
from nodeagent.model.values import Value
from nodeagent.model.wording import list_near
from nodeagent.rules.mig.layouts import Layout, LayoutRule
from nodeagent.rules.mig.named import name_layouts
from nodeagent.rules.mig.profiles import ProfileUnreadable, parse_profile

REQUEST_VERSION = 1
NEAR_COUNT = 3
BY_LABEL = f"the label {MIG_CONFIG_LABEL}"
BY_CONFIGURATION = "mig.layout of the configuration"


class LayoutRequestUnreadable(ValueError):
    """The stored bytes have another form."""


class Remembered(Value, frozen=True):
    """The request made last, and the label's value then."""

    layout: str = ""
    origin: str = ""
    label: str = ""
    paused: Mapping[str, str] = field(default_factory=dict)
    """The node's labels for a pause of other DaemonSets, with their former values: restored whatever happens."""
    boots: Mapping[GpuUuid, str] = field(default_factory=dict)
    """By GPU: the boot of the node in which the need of another boot was reported."""


class LayoutRequest(Value, frozen=True):
    """The requested layout; empty for none."""

    layout: str = ""
    origin: str = ""
    number: int = 0
    """A new number for each request by a person, so that the same layout can be asked for again."""


def encode_remembered(remembered: Remembered) -> bytes:
    """The bytes to store."""
    return msgspec.json.encode(remembered)


def decode_remembered(body: bytes) -> Remembered:
    """The stored request.

    Raises:
        LayoutRequestUnreadable: The bytes have another form.
    """
    try:
        return msgspec.json.decode(body, type=Remembered)
    except msgspec.DecodeError as error:
        raise LayoutRequestUnreadable(str(error)) from error


def note_label(remembered: Remembered, label: str | None) -> Remembered:
    """The request once the label is known; an unreadable label (`None`) changes nothing."""
    if label is None or label == remembered.label:
        return remembered
    paused = remembered.paused
    return Remembered(layout=label, origin=BY_LABEL, label=label, paused=paused) if label else Remembered(paused=paused)


def note_boot(remembered: Remembered, gpus: Iterable[GpuUuid], boot: str) -> Remembered:
    """The request with the boot in which the need of another boot was reported for these GPUs."""
    return replace(remembered, boots={**remembered.boots, **dict.fromkeys(gpus, boot)})


def decide_request(remembered: Remembered, configured: str | None, number: int) -> LayoutRequest:
    """The layout in force now."""
    if remembered.layout:
        return LayoutRequest(layout=remembered.layout, origin=remembered.origin, number=number)
    return LayoutRequest(layout=configured or "", origin=BY_CONFIGURATION if configured else "", number=number)


def render_layouts(entries: Sequence[LayoutEntry]) -> tuple[Mapping[str, Layout], tuple[str, ...]]:
    """The layouts of the configuration by name, and their problems."""
    layouts: dict[str, Layout] = {}
    problems: list[str] = []
    for place, entry in enumerate(entries):
        here = f"mig.layouts[{place}]"
        counts: dict[str, int] = {}
        for name, count in entry.devices.items():
            try:
                counts[parse_profile(name).name] = count
            except ProfileUnreadable as error:
                problems.append(f"{here}.devices: {error}")
        if counts and not entry.enabled:
            problems.append(f"{here}.devices: there are none with enabled: false; take them out")
        selectors = () if ALL in entry.gpus else entry.gpus
        part = LayoutRule(
            enabled=entry.enabled,
            selectors=selectors,
            profiles={name: count for name, count in counts.items() if count},
        )
        layouts[entry.name] = (*layouts.get(entry.name, ()), part)
    return layouts, tuple(problems)


def find_layout(
    name: str, configured: Mapping[str, Layout], of_file: Mapping[str, Layout], gpus: Sequence[Gpu]
) -> tuple[Layout | None, str]:
    """The layout of this name, or why there is none: from the configuration, the file, or made from the hardware."""
    generated = name_layouts(gpus)
    for known in (configured, of_file, generated):
        if name in known:
            return known[name], ""
    near = list_near(name, [*configured, *of_file, *generated], NEAR_COUNT)
    if near:
        return None, f"there is no layout {name}; did you mean {' or '.join(near)}?"
    others = len({*configured, *of_file} - generated.keys())
    more = f", and {others} more are in the configuration and its layouts file" if others else ""
    return None, f"there is no layout {name}: this node's boards have {', '.join(generated)}{more}"


TRIES: Final = 5
"""How many tries a request gets; further tries take a new request."""


class Retry:
    """The last failure, and when to retry."""

    def __init__(self, now: Callable[[], float], pause: Callable[[int], float]) -> None:
        """`pause` is how long a GPU is left alone after its return, by the number of tries."""
        self._now, self._pause = now, pause
        self._failed: tuple[LayoutRequest, str] | None = None
        self._gpus: tuple[GpuUuid, ...] | None = ()
        self._tries = 0
        self._due_at: float | None = None

    def forget(self) -> None:
        """Drop the failure: nothing has failed, or the cause may be mended."""
        self._failed, self._tries, self._due_at = None, 0, None

    def note_failed(self, request: LayoutRequest, reason: str, gpus: tuple[GpuUuid, ...] | None) -> bool:
        """Note a failure at these GPUs, which other GPUs cannot mend; returns whether the failure is new.

        `None`: refused before anything was begun, so any new GPU may change the judgement.
        """
        before, self._failed = self._failed, (request, reason)
        if before is None or before[0] != request:
            self._tries = 0
        self._tries += gpus is not None
        self._gpus, self._due_at = gpus, None
        return gpus is not None or before != self._failed

    def note(self, fact: ConfigurationReloaded | GpuAppeared) -> None:
        """Note an event, perhaps the awaited event."""
        if isinstance(fact, ConfigurationReloaded):
            self.forget()
        elif self._failed is not None and self._tries < TRIES and (self._gpus is None or fact.gpu in self._gpus):
            # GPUs often come together, and a GPU that has just come may go again: the last arrival counts.
            self._due_at = self._now() + self._pause(1 + self._tries)

    def is_barred(self, request: LayoutRequest) -> bool:
        """Whether the request failed, and is not to be tried now."""
        is_known = self._failed is not None and self._failed[0] == request
        return is_known and (self._due_at is None or self._now() < self._due_at)

    def rest_seconds(self) -> float | None:
        """Seconds until the next try; `None` while a missing GPU is awaited."""
        return None if self._due_at is None else max(0.0, self._due_at - self._now())


class Drift:
    """The layout last in place, and its GPUs."""

    def __init__(self) -> None:
        self._request: LayoutRequest | None = None
        self._seen: frozenset[GpuUuid] = frozenset()
        self._away: frozenset[GpuUuid] = frozenset()
        self._away_in = 0
        """The generation of the inventory in which a GPU was last away."""

    def forget(self) -> None:
        """No layout is asked for any more."""
        self._request = None

    def is_of(self, request: LayoutRequest) -> bool:
        """Whether this layout was in place."""
        return request == self._request

    def note_inventory_poll(self, inventory: Inventory, *, has_driver: bool) -> None:
        """Note GPUs missing from an inventory as away; without a driver all are, as the inventory is an old copy."""
        here = {gpu.uuid for gpu in inventory.gpus if has_driver and not gpu.lost}
        if away := self._seen - here:
            self._away |= away
            self._away_in = inventory.generation

    def note_in_place(self, request: LayoutRequest, inventory: Inventory) -> None:
        """Note GPUs cut as asked, or otherwise by another program; a GPU back intact counts as never away."""
        if request != self._request:
            self._seen = self._away = frozenset()
        if inventory.generation != self._away_in:
            self._away = frozenset()
        self._request = request
        self._seen |= {gpu.uuid for gpu in inventory.gpus}

    def list_cut(self, request: LayoutRequest, inventory: Inventory) -> frozenset[GpuUuid]:
        """The GPUs cut by another program, among GPUs that differ."""
        if request != self._request:
            return frozenset()
        return self._seen - {gpu.uuid for gpu in inventory.gpus if gpu.uuid in self._away and not gpu.mig_devices}
