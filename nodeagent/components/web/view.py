"""The node as shown to every reader: the newest states, joined on demand; pure.

Owns the choice of states. Refuses to keep anything: each answer is made anew from retained states.
"""

from collections.abc import Callable, Sequence
from typing import Any

from nodeagent.components.web.api.build import Identity, build_components, build_conditions, build_gates, build_state
from nodeagent.components.web.api.latest import ReadLatest
from nodeagent.components.web.api.records import EventRecord, StateRecord
from nodeagent.components.web.api.stream import QUIET_TYPES, build_event
from nodeagent.components.web.page.event_words import Teller
from nodeagent.components.web.page.overview import PageView
from nodeagent.components.web.page.periods import PeriodHistory
from nodeagent.components.web.page.trend import Trends
from nodeagent.core.values import ActiveCondition, ComponentReport, Envelope, GateState
from nodeagent.model.gpu import Inventory
from nodeagent.model.repairs import RepairState
from nodeagent.model.telemetry import NodeSample
from nodeagent.rules.ids import Names, build_names
from nodeagent.rules.receipts import Receipt


class NodeView:
    """All views of this node."""

    def __init__(
        self,
        read: ReadLatest,
        history: Callable[[], Sequence[Envelope[Any]]],
        identity: Identity,
        *,
        gates: Callable[[], Sequence[GateState]],
        conditions: Callable[[], Sequence[ActiveCondition]],
        reports: Callable[[], Sequence[ComponentReport]],
        receipts: Callable[[], tuple[Receipt, ...]],
        wall: Callable[[], float],
    ) -> None:
        """`receipts` has the newest receipts with faults, and `wall` is the clock for people."""
        self._read, self._history, self._identity = read, history, identity
        self._gates, self._conditions, self._reports, self._wall = gates, conditions, reports, wall
        self._receipts = receipts
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
            self._read,
            build_gates(self._gates(), identity.vital_gates),
            build_components(self._reports()),
            build_conditions(self._conditions()),
            now_seconds=self._wall(),
        )

    def page(self) -> PageView:
        """The node now, its last minutes, hour and day, and its events."""
        return PageView(
            state=self.state(),
            trend=self._trends.points(),
            history=tuple(self._history()),
            past=self._past,
            periods=self._periods.periods(),
            receipts=self._receipts(),
            repairs=self._read(RepairState) or RepairState(),
        )

    def events(self) -> list[EventRecord]:
        """Events of earlier processes, then events in the history."""
        teller = Teller(self.names())
        return [*self._past, *(build_event(envelope, teller) for envelope in self._history())]

    def find_newest(self) -> int:
        """The number of the last event that is more than a reading; 0 without events."""
        told = (one.seq for one in self._history() if one.type_name not in QUIET_TYPES)
        return max(told, default=0)

    def names(self) -> Names:
        """Short names of all devices; made anew only when the inventory is another."""
        inventory = self._read(Inventory)
        if self._named[0] is not inventory:
            self._named = (inventory, build_names(inventory))
        return self._named[1]
