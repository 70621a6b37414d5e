"""The node as shown to every reader: the newest states, joined on demand; pure.

Owns the choice of states. Refuses to keep anything: each answer is made anew from retained states.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from nodeagent.components.web.api.build import (
    Identity,
    LatestStates,
    build_components,
    build_conditions,
    build_gates,
    build_state,
)
from nodeagent.components.web.api.claims import join_claims
from nodeagent.components.web.api.records import EventRecord, StateRecord
from nodeagent.components.web.api.stream import QUIET_TYPES, build_event
from nodeagent.components.web.page.event_words import Teller
from nodeagent.components.web.page.overview import PageView
from nodeagent.components.web.page.periods import PeriodHistory
from nodeagent.components.web.page.trend import Trends
from nodeagent.core.values import ActiveCondition, ComponentReport, Envelope, GateState
from nodeagent.model.allocation import AllocationTable, ClaimTable
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.devices import DeviceTable
from nodeagent.model.driver import DriverState
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import HealthReport
from nodeagent.model.journal import FractionTable
from nodeagent.model.labels import LabelState
from nodeagent.model.mig import MigState
from nodeagent.model.mps import MpsState
from nodeagent.model.offering import Offering
from nodeagent.model.plugin import PluginState
from nodeagent.model.runtime import CdiState, RuntimeState
from nodeagent.model.slices import PublishedSlices
from nodeagent.model.telemetry import NodeSample
from nodeagent.model.usage import FractionUsage
from nodeagent.rules.ids import Names, build_names

T = TypeVar("T")


class BusLike(Protocol):
    """The parts of the bus read here."""

    def latest(self, state: type[T], key: str = "") -> Envelope[T] | None:
        """The newest state of a class."""
        ...

    def history(self) -> Sequence[Envelope[Any]]:
        """Recent envelopes, oldest first."""
        ...


class GatesLike(Protocol):
    """The parts of the gates read here."""

    def states(self) -> Sequence[GateState]:
        """All gates."""
        ...


class ConditionsLike(Protocol):
    """The parts of the conditions read here."""

    def active(self) -> Sequence[ActiveCondition]:
        """The conditions that people should see."""
        ...


class ClockLike(Protocol):
    """The parts of the clock read here."""

    def wall(self) -> float:
        """Unix seconds."""
        ...


class NodeView:
    """All views of this node."""

    def __init__(
        self,
        bus: BusLike,
        gates: GatesLike,
        conditions: ConditionsLike,
        clock: ClockLike,
        identity: Identity,
        reports: Callable[[], Sequence[ComponentReport]],
    ) -> None:
        self._bus, self._gates, self._conditions, self._clock = bus, gates, conditions, clock
        self._identity, self._reports = identity, reports
        self._trends, self._periods = Trends(), PeriodHistory()
        self._past: tuple[EventRecord, ...] = ()
        self._named: tuple[Inventory | None, Names] = (None, {})

    @property
    def epoch(self) -> str:
        """Tells this process of the agent from every other."""
        return f"{self._identity.pid}.{self._identity.started_seconds:.0f}"

    def note_stored_events(self, events: Sequence[EventRecord]) -> None:
        """Take up events from before the agent's start."""
        self._past = tuple(events)

    def note(self, value: object) -> None:
        """Record a reading for the curves; other values leave no trace."""
        if isinstance(value, NodeSample):
            self._trends.add(value)
            self._periods.add(value)

    def state(self) -> StateRecord:
        """The node now."""
        identity = self._identity
        return build_state(
            identity,
            self._known(),
            build_gates(self._gates.states(), identity.vital_gates),
            build_components(self._reports()),
            build_conditions(self._conditions.active()),
            now_seconds=self._clock.wall(),
        )

    def page(self) -> PageView:
        """The node now, its last minutes, hour and day, and its events."""
        return PageView(
            state=self.state(),
            trend=self._trends.points(),
            history=tuple(self._bus.history()),
            past=self._past,
            periods=self._periods.periods(),
        )

    def events(self) -> list[EventRecord]:
        """Events of earlier processes, then events in the history."""
        teller = Teller(self.names())
        return [*self._past, *(build_event(envelope, teller) for envelope in self._bus.history())]

    def find_newest(self) -> int:
        """The number of the last event that is more than a reading; 0 without events."""
        told = (one.seq for one in self._bus.history() if one.type_name not in QUIET_TYPES)
        return max(told, default=0)

    def names(self) -> Names:
        """Short names of all devices; made anew only when the inventory is another."""
        inventory = self._latest(Inventory)
        if self._named[0] is not inventory:
            self._named = (inventory, build_names(inventory))
        return self._named[1]

    def _known(self) -> LatestStates:
        return LatestStates(
            driver=self._latest(DriverState),
            inventory=self._latest(Inventory),
            sample=self._latest(NodeSample),
            health=self._latest(HealthReport),
            plugin=self._latest(PluginState),
            runtime=self._latest(RuntimeState),
            cdi=self._latest(CdiState),
            allocations=join_claims(self._latest(AllocationTable), self._latest(ReadyClaims), self._latest(ClaimTable)),
            labels=self._latest(LabelState),
            offering=self._latest(Offering),
            parts=self._latest(FractionTable),
            usage=self._latest(FractionUsage),
            mps=self._latest(MpsState),
            devices=self._latest(DeviceTable),
            mig=self._latest(MigState),
            slices=self._latest(PublishedSlices),
        )

    def _latest(self, state: type[T]) -> T | None:
        envelope = self._bus.latest(state)
        return envelope.value if envelope is not None else None
