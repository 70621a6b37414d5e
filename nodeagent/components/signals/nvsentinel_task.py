"""Tells NVSentinel of each fault of a GPU and of its end, through the platform connector of this node.

Owns the conditions `nvsentinel-not-told` and `told-faults-not-kept`, and the file of what was told: durable before an
event leaves, so that the next life of the agent tells the end of a fault, and tells no fault twice as news.
With `signals.nvsentinel` switched off, the ends of all faults told before are told, and nothing else.
"""

from random import Random

import anyio
from anyio.abc import TaskStatus
from msgspec import DecodeError

from nodeagent.components.signals.faults import Faults
from nodeagent.components.signals.node_conditions_task import read_faults
from nodeagent.components.signals.nvsentinel import ReportedFault, ReportedFaults, decode_told, encode_told, plan_told
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.backoff import Backoff, BackoffSettings
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.host.files.sealed_store import SealedStore
from nodeagent.edge.nvsentinel.connector import PlatformConnector
from nodeagent.model.cluster import ClusterNode
from nodeagent.model.errors import NodeagentError
from nodeagent.model.events import ConfigurationReloaded
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import HealthReport
from nodeagent.rules.repairers import is_left_to_others

NOT_TOLD, NOT_KEPT = "nvsentinel-not-told", "told-faults-not-kept"
AT_ONCE = 64
"""Events in a request."""
KEEP_AGAIN_SECONDS = 60.0
"""Between two tries of a disk that fails."""
_REST_SECONDS = 0.001
"""The shortest wait: a smaller rest of a time may not move the clock."""
_RETRY = BackoffSettings(first_seconds=1.0, limit_seconds=60.0)


class Nvsentinel:
    """The component."""

    name = "nvsentinel"

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        clock: Clock,
        live: LiveSettings,
        connector: PlatformConnector,
        store: SealedStore,
        *,
        rng: Random | None = None,
    ) -> None:
        self._bus, self._conditions, self._clock, self._live = bus, conditions, clock, live
        self._connector, self._store = connector, store
        self._rng = rng or Random()  # noqa: S311 - spreads load, keeps no secret
        self._backoff = Backoff(_RETRY, self._rng)
        self._table = ReportedFaults()
        self._kept = encode_told(self._table)
        """The content of the file."""
        self._not_before = 0.0
        self._waker = Waker()
        self._log = get_logger(component=self.name)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Tell until cancelled; started before the connector answers, as NVSentinel may come later."""
        states = self._bus.watch_all(HealthReport, Inventory, ClusterNode, client=self.name)
        reloads = self._bus.listen(ConfigurationReloaded, client=f"{self.name} settings")
        try:
            self._table = await self._read()
            self._kept = encode_told(self._table)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._waker.follow, states, name="nvsentinel states")
                tasks.start_soon(self._waker.follow, reloads, name="nvsentinel settings")
                task_status.started()
                await self._tell_forever()
        finally:
            self._store.close()

    async def _tell_forever(self) -> None:
        while True:
            with anyio.move_on_after(await self._tell_news()):
                await self._waker.wait()

    async def _read(self) -> ReportedFaults:
        stored = await self._store.read()
        for trouble in stored.troubles:
            self._log.warning("told_faults_not_read", reason=trouble)
        if stored.body is None:
            return ReportedFaults()
        try:
            return decode_told(stored.body)
        except DecodeError as error:
            outcome = await self._store.discard(f"not a table of told faults: {error}")
            self._log.warning("told_faults_not_read", reason=str(error), outcome=outcome)
            return ReportedFaults()

    async def _tell_news(self) -> float | None:
        """Tell what is due; returns the seconds until the next try, `None` until news."""
        self._table = self._plan()
        await self._keep()
        wait = self._not_before - self._clock.monotonic()
        if self._table.due and wait > 0:
            return max(wait, _REST_SECONDS)
        try:
            while due := self._table.due[:AT_ONCE]:
                await self._connector.tell([told.event for _, told in due])
                self._note_taken(due)
                await self._keep()
        except NodeagentError as error:
            pause = self._backoff.delay_after_failure(ran_seconds=0)
            self._not_before = self._clock.monotonic() + pause
            self._log.warning("nvsentinel_not_told", reason=str(error))
            self._conditions.set(NOT_TOLD, detail=str(error))
            return pause
        self._conditions.clear(NOT_TOLD)
        return None if self._kept == encode_told(self._table) else KEEP_AGAIN_SECONDS

    def _plan(self) -> ReportedFaults:
        settings, now = self._live.now, self._clock.wall()
        if not settings.signals.nvsentinel.enabled:
            return plan_told(self._table, Faults(), now, is_acted_on=False)
        faults = read_faults(self._bus, settings.gpus)
        if faults is None or not faults.gpus:
            return self._table
        node = self._bus.read(ClusterNode)
        may_act = settings.signals.nvsentinel.strategy == "execute"
        is_acted_on = may_act and node is not None and not is_left_to_others(node)
        return plan_told(self._table, faults, now, is_acted_on=is_acted_on)

    async def _keep(self) -> None:
        """Make the table durable; with a failing disk the agent goes on without, and says so."""
        content = encode_told(self._table)
        if content == self._kept:
            return
        trouble = await self._store.write(content)
        if not trouble:
            self._kept = content
        self._conditions.show(NOT_KEPT, trouble)

    def _note_taken(self, due: tuple[tuple[str, ReportedFault], ...]) -> None:
        for key, told in due:
            self._table = self._table.note_taken(key, told)
            event = told.event
            self._log.info("nvsentinel_told", check=event.check, gpu=told.gpu, is_healthy=event.is_healthy)
        self._backoff = Backoff(_RETRY, self._rng)
