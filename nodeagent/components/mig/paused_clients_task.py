"""Unpauses the DaemonSets that an earlier agent paused before it was killed, where the present agent cuts no GPUs.

Owns the labels still to restore, as stored then. Refuses to forget the rest of the store: the layout asked for last is
there again when `mig.manage` is on again.
"""

from collections.abc import Mapping

import anyio
from anyio.abc import TaskStatus
from msgspec.structs import replace

from nodeagent.components.mig.clients import GIVE_BACK_SECONDS, PAUSED, Clients
from nodeagent.components.mig.request import LayoutRequestUnreadable, Remembered, decode_remembered, encode_remembered
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.host.files.sealed_store import SealedStore
from nodeagent.model.ports import ClientPausing


class PausedClients:
    """The component."""

    name = "mig_owed"

    def __init__(self, conditions: Conditions, clock: Clock, store: SealedStore, pausing: ClientPausing | None) -> None:
        self._conditions, self._store = conditions, store
        self._remembered = Remembered()
        self._clients = Clients(pausing, lambda: False, self._remember, anyio.sleep, clock.monotonic)
        self._log = get_logger(component=self.name)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Restore labels until all are restored."""
        await self._recall()
        task_status.started()
        while self._clients.owed:
            owed = sorted(self._clients.owed)
            trouble = await self._clients.give_back()
            self._conditions.replace(PAUSED, {"": trouble} if trouble else {})
            if not trouble:
                self._log.info("mig_pause_given_back", labels=owed)
                break
            await anyio.sleep(GIVE_BACK_SECONDS)
        await anyio.sleep_forever()

    async def _recall(self) -> None:
        stored = await self._store.read()
        if stored.body is None:
            return
        try:
            self._remembered = decode_remembered(stored.body)
        except LayoutRequestUnreadable as error:
            self._log.warning("mig_wish_unreadable", reason=await self._store.discard(str(error)))
        self._clients.owed = self._remembered.paused

    async def _remember(self, paused: Mapping[str, str]) -> str:
        self._remembered = replace(self._remembered, paused=paused)
        return await self._store.write(encode_remembered(self._remembered))
