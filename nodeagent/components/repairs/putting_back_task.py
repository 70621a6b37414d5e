"""Puts back what an act took and did not put back, and takes back a request for a reboot that nobody needs any more.

The agent was killed within an act, or the driver did not answer after it: the journal has what is owed until then.
Refuses to touch a GPU while an act is under way.
"""

from collections.abc import Callable, Collection, Mapping

from anyio.abc import TaskGroup

from nodeagent.components.repairs.acting_task import Acting, ActPorts
from nodeagent.components.repairs.drain_task import AGAIN_SECONDS
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.clock import Clock
from nodeagent.core.log.lines import get_logger
from nodeagent.model.cluster import ClusterNode
from nodeagent.model.gpu import Inventory
from nodeagent.model.repairs import Attempt, FaultSession, KeptSettings
from nodeagent.rules.repair.acts import is_request_stale
from nodeagent.rules.repair.outcomes import list_owed_settings


class PuttingBack:
    """Settings, modules and requests owed by the acts of this node."""

    def __init__(
        self, ports: ActPorts, acting: Acting, bus: Bus, live: LiveSettings, clock: Clock, wake: Callable[[], None]
    ) -> None:
        """`wake` is called after settings were put back."""
        self._ports, self._acting, self._bus, self._live = ports, acting, bus, live
        self._clock, self._wake = clock, wake
        self._due = 0.0
        self._withdrawn_from: ClusterNode | None = None
        """The node as it was when the request for a reboot was last taken back."""
        self._log = get_logger(component="repairs")

    def list_owed_settings(self, sessions: Mapping[int, FaultSession]) -> tuple[KeptSettings, ...]:
        """Settings that an act took and did not put back, of GPUs that are here."""
        inventory = self._bus.read(Inventory)
        find = inventory.find_gpu if inventory is not None else lambda _: None
        owed = ((one, find(one.gpu)) for one in list_owed_settings(sessions.values()))
        return tuple(one for one, gpu in owed if gpu is not None and not gpu.lost)

    def restore_settings(self, sessions: Mapping[int, FaultSession], tasks: TaskGroup) -> None:
        """Put settings back beside the component, unless an act is under way."""
        acting, now = self._acting, self._clock.monotonic()
        if acting.session or acting.is_restoring:
            return
        if (owed := self.list_owed_settings(sessions)) and now >= self._due:
            acting.is_restoring, self._due = True, now + AGAIN_SECONDS
            tasks.start_soon(self._restore, owed, name="repairs settings")

    async def _restore(self, owed: tuple[KeptSettings, ...]) -> None:
        await self._acting.restore(owed)
        self._wake()

    def restore_driver(self, attempt: Attempt | None, boot: str, tasks: TaskGroup) -> None:
        """Bring back modules and services that were taken in this boot, without which no finding ever settles."""
        taken = attempt.driver if attempt is not None and attempt.boot == boot else None
        if taken is None or self._ports.reload is None:
            return
        tasks.start_soon(self._ports.reload.restore, taken, name="repairs driver")

    async def withdraw_reboot(self, sessions: Collection[FaultSession], boot: str) -> bool:
        """Take a request for a reboot back from the node after the boot, or when nobody waits for the boot any more.

        Returns whether the node has no request that is to be taken back.
        """
        node, key = self._bus.read(ClusterNode), self._live.now.repairs.reboot_annotation.key
        withdraw = self._ports.withdraw_reboot
        if withdraw is None or node is self._withdrawn_from or not is_request_stale(node, key, sessions, boot):
            return True
        answer = await withdraw()
        if answer.code != 0:
            self._log.warning("reboot_request_not_withdrawn", annotation=key, reason=answer.describe())
            return False
        self._withdrawn_from = node
        return True
