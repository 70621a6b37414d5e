"""Follows the pods that are chosen for this node, and ends the scheduler's wait for the GPUs of their claims.

Owns the watch of these pods, the begin of each wait, and the condition `claims-not-proven`. Refuses to prove: the
component is told which GPUs are wanted. Refuses to have pods wait that nobody would free: without the watch, or the
right to write conditions, the slices ask for no proof.
"""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import aclosing
from random import Random
from typing import NamedTuple, TypeAlias

import anyio

from nodeagent.components.proof.binding import (
    BindingSight,
    DeviceWait,
    Step,
    answer_device,
    end_wait,
    list_awaiting,
    list_offered,
)
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.backoff import Backoff, BackoffSettings
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.kube.errors import ApiConflict
from nodeagent.edge.kube.pods import KubeNominatedPods, NominatedForbidden, NominatedPodTable
from nodeagent.edge.kube.resource_claims import KubeClaims, StatusForbidden
from nodeagent.model.claims import DeviceCondition, ReadyClaims, ResourceClaim
from nodeagent.model.errors import NodeagentError
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import GpuUuid
from nodeagent.model.proof import GpuProofs, ProofStage
from nodeagent.model.slices import PublishedSlices, SliceContent
from nodeagent.rules.claims.naming import find_device

CONDITION = "claims-not-proven"
ALLOCATION_SECONDS, RECHECK_SECONDS, LOOK_SECONDS = 1.0, 5.0, 0.5
"""Between two readings of a claim that is not allocated yet, of any other claim, and between two looks."""
UNHEARD_SECONDS = 60.0
"""How long the watch may be away before slices ask for no proof."""
_RETRY = BackoffSettings(first_seconds=0.5, limit_seconds=30.0)
Place: TypeAlias = tuple[str, str]
"""The namespace and name of a claim."""
_Key: TypeAlias = tuple[str, str, str, str]
"""Of a wait: the uid of the claim, the time of the allocation, the device and its share."""


class BindingCluster(NamedTuple):
    """The pods and claims of the cluster, this node's pool, and the slices as the API server has them."""

    pods: KubeNominatedPods
    claims: KubeClaims
    pool: str
    list_slices: Callable[[], Sequence[SliceContent]]


class _Read(NamedTuple):
    claim: ResourceClaim | None
    due_seconds: float


class BindingProofs:
    """The task; a part of the component."""

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        clock: Clock,
        live: LiveSettings,
        cluster: BindingCluster,
        list_provable: Callable[[], AbstractSet[GpuUuid]],
        note: Callable[[], None],
        rng: Random | None = None,
    ) -> None:
        """Wire the task up.

        `list_provable` has the GPUs that may be proven now; `note` is called for wanted GPUs, and for a changed
        `is_ready`.
        """
        self._bus, self._conditions, self._clock, self._live = bus, conditions, clock, live
        self._cluster, self._list_provable, self._note = cluster, list_provable, note
        self._rng = rng or Random()  # noqa: S311 - spreads load, keeps no secret
        self._stage = ProofStage(live.now.proof.before_binding)
        self._table: NominatedPodTable = {}
        self._read: dict[Place, _Read] = {}
        self._waits: dict[_Key, DeviceWait] = {}
        self._forbidden = ""
        """Why no condition may be written; empty while that is not known."""
        self._waker = Waker()
        self._log = get_logger(component="proof")
        self.is_ready: bool | None = None
        """Whether pods may wait for this agent; `None` while unknown."""
        self.wanted: tuple[GpuUuid, ...] = ()
        """The GPUs that pods wait for, and that are to be proven now."""

    async def run(self) -> None:
        """Follow and answer until cancelled."""
        async with anyio.create_task_group() as tasks:
            states = self._bus.watch_all(GpuProofs, PublishedSlices, ReadyClaims, client="proof binding")
            tasks.start_soon(self._waker.follow, states, name="proof binding states")
            tasks.start_soon(self._follow_forever, name="proof nominated pods")
            while True:
                await self._look()
                with anyio.move_on_after(LOOK_SECONDS if self._table else None):
                    await self._waker.wait()

    async def _follow_forever(self) -> None:
        backoff, heard_at = Backoff(_RETRY, self._rng), self._clock.monotonic()
        while True:
            began = self._clock.monotonic()
            try:
                async with aclosing(self._cluster.pods.follow()) as tables:
                    async for table in tables:
                        heard_at, self._table = self._clock.monotonic(), table
                        self._show_ready("")
                        self._waker.wake()
            except NodeagentError as error:
                self._log.warning("nominated_pods_not_followed", reason=str(error))
                is_away = self._clock.monotonic() - heard_at >= UNHEARD_SECONDS
                if is_away or self.is_ready is False or isinstance(error, NominatedForbidden):
                    self._show_ready(str(error))
            await anyio.sleep(backoff.delay_after_failure(ran_seconds=self._clock.monotonic() - began))

    async def _look(self) -> None:
        places = {(each.pod.namespace, name) for each in self._table.values() for name in each.claims}
        self._read = {place: read for place, read in self._read.items() if place in places}
        waits, wanted = dict[_Key, DeviceWait](), dict[GpuUuid, None]()
        for place in sorted(places):
            claim, sight = await self._find_claim(place), self._see()
            if claim is None or sight is None:
                continue
            awaiting = list_awaiting(claim, self._live.now.claims.driver, self._cluster.pool)
            answers = []
            for result in awaiting:
                key = (claim.uid, claim.allocated_at, result.device, result.share_id)
                named = find_device(sight.inventory, result.device)
                record = sight.records.get(named.gpu.uuid) if named is not None else None
                waits[key] = self._waits.get(key) or DeviceWait(since_seconds=sight.now_seconds, before=record)
                answers.append((result, answer := answer_device(result, waits[key], sight)))
                if answer.step is Step.PROVE and named is not None:
                    wanted[named.gpu.uuid] = None
            if conditions := end_wait(answers):
                await self._end_wait(place, claim, conditions)
        self._waits, self.wanted = waits, tuple(wanted)
        if wanted:
            self._note()

    async def _find_claim(self, place: Place) -> ResourceClaim | None:
        """The claim where it is allocated; read anew when due."""
        before, now = self._read.get(place), self._clock.monotonic()
        if before is not None and now < before.due_seconds:
            return before.claim
        claim = None
        try:
            claim = await self._cluster.claims.find_claim(*place)
        except NodeagentError as error:
            self._log.warning("claim_not_read", claim="/".join(place), reason=str(error))
        is_allocated = claim is not None and claim.is_allocated
        self._read[place] = _Read(
            claim if is_allocated else None, now + (RECHECK_SECONDS if is_allocated else ALLOCATION_SECONDS)
        )
        return self._read[place].claim

    def _see(self) -> BindingSight | None:
        """The node as it is now; `None` before the inventory and the slices are known."""
        settings, read = self._live.now, self._bus.read
        inventory, contents = read(Inventory), self._cluster.list_slices()
        if inventory is None or not contents:
            return None
        claims, proofs = read(ReadyClaims), read(GpuProofs) or GpuProofs()
        return BindingSight(
            inventory=inventory,
            offered=list_offered(contents),
            records=proofs.gpus,
            free=self._list_provable(),
            proving=proofs.proving,
            held=claims.by_gpu.keys() if claims is not None else frozenset(),
            stage=self._stage,
            fresh_seconds=settings.proof.fresh_seconds,
            patience_seconds=settings.proof.patience_seconds,
            now_seconds=self._clock.monotonic(),
            wall_seconds=self._clock.wall(),
        )

    async def _end_wait(self, place: Place, claim: ResourceClaim, conditions: Sequence[DeviceCondition]) -> None:
        now, name = self._clock.monotonic(), "/".join(place)
        self._read[place] = _Read(None, now + RECHECK_SECONDS)
        try:
            await self._cluster.claims.write_conditions(claim, conditions, self._clock.wall())
        except ApiConflict:
            # The claim has changed, and may have other devices by now.
            del self._read[place]
        except NodeagentError as error:
            self._log.warning("claim_not_answered", claim=name, reason=str(error))
            if isinstance(error, StatusForbidden):
                self._forbidden = str(error)
                self._show_ready(self._forbidden)
        else:
            for each in conditions:
                said = {"device": each.result.device, "reason": each.reason, "message": each.message}
                self._log.info("claim_device_proven" if each.is_proven else "claim_device_failed", claim=name, **said)

    def _show_ready(self, reason: str) -> None:
        is_ready = not (reason or self._forbidden)
        self._conditions.show(CONDITION, reason or self._forbidden)
        if is_ready != self.is_ready:
            self.is_ready = is_ready
            self._note()
