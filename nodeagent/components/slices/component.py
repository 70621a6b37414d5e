"""Keeps this node's slices in the API server equal to the node's devices for claims.

Owns the round: poll, plan, write differences, and the memory of how the server changed written slices. Refuses to give
up: a failed write is tried again until the server has the slice, and a slice removed by others is put back. Writes
nothing without a difference, and asks nothing: one watch reports others' changes to the slices.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from random import Random
from typing import NamedTuple

import anyio
import anyio.lowlevel
from anyio.abc import TaskStatus
from msgspec.structs import replace

from nodeagent.components.slices.classes_task import DeviceClasses
from nodeagent.components.slices.own import OwnWrites
from nodeagent.components.slices.plan import (
    Abilities,
    Choices,
    Sight,
    explain_dropped,
    judge_kept,
    judge_refused,
    list_fields,
    plan_contents,
    summarise,
)
from nodeagent.components.slices.writes import SliceWrite, plan_writes
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.channels.news import News
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.backoff import Backoff, BackoffSettings
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.host.devices.pcie_roots import HostPcieRoots
from nodeagent.edge.kube.errors import ApiInvalid
from nodeagent.edge.kube.slices import KubeDeviceClasses, KubeSlices
from nodeagent.model.cluster import ClusterNode
from nodeagent.model.driver import DriverState
from nodeagent.model.errors import NodeagentError
from nodeagent.model.events import ConfigurationReloaded, SlicesWritten
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import HealthReport
from nodeagent.model.ids import PciAddress
from nodeagent.model.mig import MigState
from nodeagent.model.offering import Offering
from nodeagent.model.proof import GpuProofs
from nodeagent.model.slices import PublishedSlices, SliceContent, SlicePool, StoredSlice
from nodeagent.rules.claims.attributes import DeviceFacts, learn_facts

SEEN = (Inventory, HealthReport, Offering, MigState, DriverState, GpuProofs)
"""The states that slices are made of."""
_RETRY = BackoffSettings(first_seconds=0.5, limit_seconds=30.0)
_REPAIR = BackoffSettings(first_seconds=0.5, limit_seconds=60.0, stable_seconds=120.0)
"""Between two repairs of others' changes: a starting kubelet removes all slices, and one repair is enough."""


class SliceNode(NamedTuple):
    """The node whose devices are published, with its slices and pool, the cluster's classes, and the PCIe trees."""

    api: KubeSlices
    pool: SlicePool
    classes: KubeDeviceClasses
    roots: HostPcieRoots | None = None
    """`None` where no PCIe trees are published, as where GPUs are simulated."""


class Slices:
    """The slices component."""

    name = "slices"
    _told: Mapping[str, StoredSlice] | None = None
    """The slices by the watch."""
    _watches = 0
    """How many watches there were."""
    _planned: tuple[Sight, tuple[SliceContent, ...]] | None = None
    _written: tuple[SliceContent, ...] | None = None
    """The server's contents when nothing was left to write."""
    _repaired_at: float | None = None
    _repair_due: float | None = None
    _unheard = ""
    """Why the watch is away; empty while the watch runs."""

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        clock: Clock,
        live: LiveSettings,
        node: SliceNode,
        *,
        note_contents: Callable[[tuple[SliceContent, ...]], None],
        wait_judged: Callable[[], Awaitable[None]] = anyio.lowlevel.checkpoint,
        rng: Random | None = None,
    ) -> None:
        """Wire the component up.

        `wait_judged` returns after the first health check of the GPUs: before, every GPU would be published as unfit.
        `note_contents` is given the server's contents: too much for the bus, where counts alone are published.
        """
        self._bus, self._conditions, self._clock, self._live = bus, conditions, clock, live
        self._api, self._pool, classes, self._roots_of = node
        self._wait_judged = wait_judged
        self._note_contents = note_contents
        self._rng = rng or Random()  # noqa: S311 - spreads load, keeps no secret
        self._repairs = Backoff(_REPAIR, self._rng)
        self._classes = DeviceClasses(bus, conditions, clock, classes, self._rng)
        self._waker, self._news = Waker(), News()
        self._own = OwnWrites()
        self._kept: dict[str, tuple[SliceContent, SliceContent | None]] = {}
        self._abilities = Abilities()
        self._fields: frozenset[str] = frozenset()
        """The fields that the server has kept in a dry run."""
        self._newest = 0
        self._roots: dict[PciAddress, str] = {}
        self._asked: frozenset[PciAddress] = frozenset()
        self._facts = DeviceFacts()
        self._log = get_logger(component=self.name)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Follow and write until cancelled; started before the first answer, as the API server may be away."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                self._waker.follow, self._bus.watch_all(*SEEN, ClusterNode, client=self.name), name="slices states"
            )
            tasks.start_soon(
                self._waker.follow, self._bus.listen(ConfigurationReloaded, client=self.name), name="slices settings"
            )
            tasks.start_soon(self._follow_forever, name="slices watch")
            tasks.start_soon(self._classes.run, name="slices classes")
            task_status.started()
            await self._wait_judged()
            await self._publish_forever()

    async def _follow_forever(self) -> None:
        backoff = Backoff(_RETRY, self._rng)
        while True:
            began = self._clock.monotonic()
            try:
                async with aclosing(self._api.follow_slices()) as tables:
                    async for table in tables:
                        self._note_heard()
                        self._watches += self._told is None
                        self._told = table
                        self._own.settle(table)
                        self._waker.wake()
            except NodeagentError as error:
                self._note_failure(error)
                self._unheard = str(error)
            self._told = None
            self._own.forget()
            await anyio.sleep(backoff.delay_after_failure(ran_seconds=self._clock.monotonic() - began))

    async def _publish_forever(self) -> None:
        backoff = Backoff(_RETRY, self._rng)
        while True:
            await self._waker.wait()
            try:
                while await self._publish():
                    backoff = Backoff(_RETRY, self._rng)
            except NodeagentError as error:
                self._note_failure(error)
                # Changes meanwhile wait no longer than this delay.
                await anyio.sleep(backoff.delay_after_failure(ran_seconds=0))
                self._waker.wake()

    async def _publish(self) -> bool:
        """One round; returns whether anything was written: another round is due then."""
        sight = await self._look()
        if self._told is None or sight is None:
            return False
        stored = self._own.put_over(self._told)
        contents = self._plan(sight)
        writes = plan_writes(self._pool, contents, stored, self._kept, newest=self._newest)
        if not writes:
            self._note_done(contents, stored)
            return False
        if contents == self._written and await self._pause_before_repair():
            return True
        cause = self._news.take(*(self._bus.latest(state) for state in SEEN))
        node = self._bus.read(ClusterNode)
        uid = node.uid if node is not None else await self._api.read_node_uid()
        if not await self._rehearse(writes, uid):
            return True
        for write in writes:
            await self._write(write, uid)
        fact = SlicesWritten(
            pool=self._pool.node,
            written=tuple(one.name for one in writes if one.kind != "delete"),
            removed=tuple(one.name for one in writes if one.kind == "delete"),
            generation=self._newest,
        )
        self._bus.publish_fact(fact, source=self.name, cause=cause)
        self._log.info("slices_written", written=len(fact.written), removed=len(fact.removed), generation=self._newest)
        return True

    async def _pause_before_repair(self) -> bool:
        """The planned contents are unchanged: others did something, and may not have finished. Returns whether to wait.

        A change of the planned contents meanwhile is written at once.
        """
        now = self._clock.monotonic()
        if self._repair_due is None:
            ran = _REPAIR.stable_seconds if self._repaired_at is None else now - self._repaired_at
            self._repair_due = now + self._repairs.delay_after_failure(ran_seconds=ran)
        if now < self._repair_due:
            with anyio.move_on_after(self._repair_due - now):
                await self._waker.wait()
            return True
        self._repaired_at, self._repair_due = now, None
        return False

    async def _look(self) -> Sight | None:
        inventory, health, offering = self._bus.read(Inventory), self._bus.read(HealthReport), self._bus.read(Offering)
        if inventory is None or health is None or offering is None:
            return None
        proofs, settings = self._bus.read(GpuProofs), self._live.now.claims
        is_asked = self._live.now.proof.before_binding != "off" and self._live.now.gpus.simulated_profile is None
        if is_asked and (proofs is None or proofs.is_before_binding is None):
            # Without the binding conditions, pods would be bound without a proof at each start of the agent.
            return None
        await self._read_roots(frozenset(gpu.pci.address for gpu in inventory.gpus))
        driver = self._bus.read(DriverState)
        self._facts = learn_facts(self._facts, driver, inventory.pairs, self._roots, proofs)
        return Sight(
            inventory=inventory,
            health=health,
            offering=offering,
            choices=Choices(
                driver=self._pool.driver,
                on_demand=settings.mig_on_demand,
                shares=settings.shares,
                share_by=settings.share_by,
                proves_first=proofs is not None and bool(proofs.is_before_binding),
                taints=settings.slices.taints,
            ),
            facts=self._facts,
            mig=self._bus.read(MigState),
            abilities=self._abilities,
        )

    async def _read_roots(self, addresses: frozenset[PciAddress]) -> None:
        if self._roots_of is None or addresses <= self._asked:
            return
        try:
            self._roots = {**await self._roots_of.read_roots(addresses)}
            self._asked = addresses
        except NodeagentError as error:
            # The attribute is optional and holds up no slice.
            self._log.warning("pcie_roots_not_read", reason=str(error))

    def _plan(self, sight: Sight) -> tuple[SliceContent, ...]:
        if self._planned is None or self._planned[0] != sight:
            self._planned = (sight, plan_contents(sight))
        return self._planned[1]

    async def _rehearse(self, writes: Sequence[SliceWrite], node_uid: str) -> bool:
        """Whether the server keeps all fields of the writes, by a dry run of the writes with fields not kept so far.

        Written without a dry run, an ill device would be on offer without its taint, and overlapping devices without
        their counters, until the next round.
        """
        before = self._abilities
        for write in writes:
            fields = list_fields(write.content) - self._fields
            if not fields:
                continue
            numbers = (write.generation, write.slice_count)
            try:
                kept = await self._api.rehearse(write.name, write.content, numbers, node_uid, write.stored)
            except ApiInvalid as error:
                self._abilities = judge_refused(error.message, before)
                if self._abilities == before:
                    raise
                self._log.warning("slice_not_taken", slice=write.name, reason=explain_dropped(self._abilities))
                return False
            self._abilities = judge_kept(write.content, kept, before)
            if self._abilities != before:
                self._log.warning("slice_not_kept_whole", slice=write.name, reason=explain_dropped(self._abilities))
                return False
            self._fields |= fields
        return True

    async def _write(self, write: SliceWrite, node_uid: str) -> None:
        """One write; the server's answer is the truth until the watch says otherwise."""
        numbers, watch = (write.generation, write.slice_count), self._watches
        if write.kind == "delete":
            assert write.stored is not None
            await self._api.delete(write.stored)
            self._note_own(watch, partial(self._own.note_deleted, write.stored))
            return
        answer = (
            await self._api.create(write.name, write.content, numbers, node_uid)
            if write.stored is None
            else await self._api.update(write.stored, write.content, numbers, node_uid)
        )
        self._note_own(watch, partial(self._own.note_written, answer))
        self._newest = max(self._newest, write.generation)
        self._note_kept(write, answer)

    def _note_own(self, watch: int, note: Callable[[], None]) -> None:
        """Note a write, unless the watch at its begin is gone: no event would end the note; the next list is newer."""
        if self._told is not None and watch == self._watches:
            note()

    def _note_kept(self, write: SliceWrite, answer: StoredSlice) -> None:
        if answer.content == write.content:
            self._kept.pop(write.name, None)
            return
        self._kept[write.name] = (write.content, answer.content)
        self._abilities = judge_kept(write.content, answer.content, self._abilities)
        self._log.warning("slice_not_kept_whole", slice=write.name, reason=explain_dropped(self._abilities))

    def _note_done(self, contents: Sequence[SliceContent], stored: Mapping[str, StoredSlice]) -> None:
        self._written = tuple(contents)
        self._note_contents(self._written)
        self._newest = max((self._newest, *(one.generation for one in stored.values())))
        self._bus.publish_state(summarise(self._pool, contents, self._newest), source=self.name)
        self._conditions.clear("slices-not-written")
        dropped = explain_dropped(self._abilities) if self._kept or self._abilities != Abilities() else ""
        self._conditions.show("slices-not-kept", dropped)

    def _note_failure(self, error: NodeagentError) -> None:
        before = self._bus.read(PublishedSlices) or PublishedSlices(driver=self._pool.driver, pool=self._pool.node)
        if before.problem != str(error):
            self._log.warning("slices_not_written", reason=str(error))
        self._bus.publish_state(replace(before, problem=str(error)), source=self.name)
        self._conditions.set("slices-not-written", detail=str(error))

    def _note_heard(self) -> None:
        """The watch is back: clear its problem, as no round would without a write."""
        problem, self._unheard = self._unheard, ""
        before = self._bus.read(PublishedSlices)
        if problem and before is not None and before.problem == problem:
            self._bus.publish_state(replace(before, problem=""), source=self.name)
            self._conditions.clear("slices-not-written")
