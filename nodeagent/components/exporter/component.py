"""Gathers what the agent says of itself at each scrape.

Owns the text of `/metrics`. It must answer when everything else is in trouble, so it only reads what is at hand.
"""

import resource
from collections.abc import Callable, Sequence

from nodeagent.components.exporter.agent_families import (
    AgentFacts,
    ComponentFacts,
    ConditionFacts,
    ListenerFacts,
    build_agent_families,
)
from nodeagent.components.exporter.exposition import render_exposition
from nodeagent.kernel.bus import Bus
from nodeagent.kernel.clock import Clock
from nodeagent.kernel.conditions import Conditions
from nodeagent.kernel.gates import Gates
from nodeagent.kernel.introspect import Introspection
from nodeagent.kernel.report import ComponentReport
from nodeagent.model.driver import DriverState
from nodeagent.model.gpu import Inventory
from nodeagent.model.telemetry import NodeSample


class MetricsRenderer:
    """Renders the exposition on demand."""

    def __init__(
        self,
        bus: Bus,
        gates: Gates,
        conditions: Conditions,
        clock: Clock,
        introspection: Introspection,
        *,
        reports: Callable[[], Sequence[ComponentReport]],
        version: str,
        started_seconds: float,
    ) -> None:
        self._bus, self._gates, self._conditions, self._clock = bus, gates, conditions, clock
        self._introspection, self._reports = introspection, reports
        self._version, self._started_seconds = version, started_seconds

    def render(self) -> bytes:
        """The exposition now."""
        return render_exposition(build_agent_families(self._gather()))

    def _gather(self) -> AgentFacts:
        driver, inventory = self._bus.latest(DriverState), self._bus.latest(Inventory)
        sample = self._bus.latest(NodeSample)
        gpus = inventory.value.gpus if inventory is not None else ()
        lost = sum(1 for gpu in gpus if gpu.lost)
        process = self._introspection.snapshot()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        statistics = self._bus.statistics()
        return AgentFacts(
            version=self._version,
            driver_ready=driver is not None and driver.value.ready,
            gates={gate.name: gate.is_open for gate in self._gates.states()},
            components=tuple(
                ComponentFacts(name=one.name, phase=one.phase, restarts=one.restarts) for one in self._reports()
            ),
            conditions=tuple(
                ConditionFacts(code=one.code, key=one.key, severity=one.severity) for one in self._conditions.active()
            ),
            listeners=tuple(
                ListenerFacts(client=one.client, depth=one.depth, lost=one.lost) for one in statistics.listeners
            ),
            bus_published=statistics.published,
            loop_lag_seconds={
                "0.5": process.lag.p50_seconds,
                "0.99": process.lag.p99_seconds,
                "1": process.lag.max_seconds,
            },
            gpus_present=len(gpus) - lost,
            gpus_lost=lost,
            gpus_missing=len(inventory.value.missing) if inventory is not None else 0,
            sample_age_seconds=max(0.0, self._clock.wall() - sample.value.time_seconds) if sample else None,
            sample_duration_seconds=sample.value.took_seconds if sample else None,
            resident_bytes=process.memory_bytes,
            open_fds=process.descriptors,
            cpu_seconds=usage.ru_utime + usage.ru_stime,
            start_time_seconds=self._started_seconds,
        )
