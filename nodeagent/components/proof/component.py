"""Proves GPUs that nobody has, one of the node at a time, and kills the prover when its GPU is given to somebody.

Owns the state `GpuProofs`, the file of the proofs, and the conditions about proofs. A GPU that failed is reported by an
event, and the component `health` takes the GPU away. A GPU for which a pod waits comes first.
Refuses to decide: `rules/proof/idle` says which GPU is free and what a proof is worth. Refuses to make a pod wait: the
journal answers first, and its news end the proof.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import anyio
from anyio.abc import TaskStatus
from msgspec import DecodeError, json

from nodeagent.components.proof.binding_task import BindingCluster, BindingProofs
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.host.files.sealed_store import SealedStore
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.driver import DriverState
from nodeagent.model.events import GpuEventReported
from nodeagent.model.gpu import Gpu, Inventory
from nodeagent.model.health import HealthReport
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import FractionTable
from nodeagent.model.mig import MigState
from nodeagent.model.mps import MpsState
from nodeagent.model.offering import Offering
from nodeagent.model.ports import GpuProver
from nodeagent.model.proof import GIVEN_UP, PROOF_FAILED, GpuProofs, ProofRecord, ProofStage, ProofVerdict
from nodeagent.model.repairs import RepairState
from nodeagent.model.telemetry import NodeSample
from nodeagent.rules.ids import name_device
from nodeagent.rules.proof.idle import (
    NodeView,
    Pace,
    ProofOf,
    find_braked_since,
    find_share,
    find_wait,
    follow_free,
    is_unused,
    judge_proof,
    list_open,
    note_given_up,
    plan_idle,
)

FAILED, SLOW, NOT_KEPT = "gpu-proof-failed", "gpu-slow", "proofs-not-kept"
SEEN: Final = (
    Inventory,
    DriverState,
    HealthReport,
    Offering,
    AllocationTable,
    FractionTable,
    ReadyClaims,
    MigState,
    MpsState,
    RepairState,
)
STORE: Final = ("proofs.json", "nodeagent-proofs", 1)
"""Name of the file, its seal, and the version of its content."""
_REST_SECONDS: Final = 0.001
"""The shortest wait: a smaller rest of a time may not move the clock."""


class Proof:
    """The component."""

    name = "proof"

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        clock: Clock,
        live: LiveSettings,
        prover: GpuProver,
        store: SealedStore,
        node: str,
        cluster: BindingCluster | None = None,
    ) -> None:
        """`cluster` has the pods that wait for a proof; `None` where no pod does."""
        self._bus, self._conditions, self._clock, self._live = bus, conditions, clock, live
        self._prover, self._store, self._node = prover, store, node
        idle, before_binding = live.now.proof.idle, live.now.proof.before_binding
        self._idle = ProofStage(idle) if idle != "off" else None
        self._before_binding = ProofStage(before_binding) if before_binding != "off" else None
        self._binding = (
            BindingProofs(bus, conditions, clock, live, cluster, self._list_provable, self._note_binding)
            if cluster is not None
            else None
        )
        self._records: dict[GpuUuid, ProofRecord] = {}
        self._counts = Counter[str]()
        self._free: dict[GpuUuid, float] = {}
        self._proving: Gpu | None = None
        self._proof = anyio.CancelScope()
        self._waker = Waker()
        self._log = get_logger(component=self.name)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Take up the kept proofs, then prove whatever is free and due until cancelled."""
        self._began_at = self._clock.monotonic()
        states = self._bus.watch_all(*SEEN, client=self.name)
        try:
            self._records = await self._recall()
            self._publish()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._waker.follow, states, name="proof states")
                if self._binding is not None:
                    tasks.start_soon(self._binding.run, name="proof before binding")
                task_status.started()
                while True:
                    due, wait = self._look()
                    if due is not None:
                        self._proving, self._proof = due[0], anyio.CancelScope()
                        tasks.start_soon(self._prove, *due, name="proof")
                    with anyio.move_on_after(wait):
                        await self._waker.wait()
        except Exception:
            # Nobody would end the wait of a pod.
            self._publish(is_failing=True)
            raise
        finally:
            self._store.close()

    def _note_binding(self) -> None:
        self._publish()
        self._waker.wake()

    def _look(self) -> tuple[tuple[Gpu, ProofStage] | None, float | None]:
        """Give up a proof whose GPU is taken; the GPU to prove now, with the stage; the seconds to the next look."""
        free, now = self._list_open(), self._clock.monotonic()
        self._free = follow_free(self._free, free, now)
        if self._proving is not None:
            if self._proving.uuid not in self._free:
                self._proof.cancel()
            return None, None
        unused = self._list_unused(free)
        if self._binding is not None and self._before_binding is not None:
            found = {gpu.uuid: gpu for gpu in free if gpu.uuid in unused}
            if wanted := [found[uuid] for uuid in self._binding.wanted if uuid in found]:
                return (wanted[0], self._before_binding), None
        return self._look_idle(free, unused, now)

    def _list_open(self) -> tuple[Gpu, ...]:
        return list_open(self._view(), self._live.now.gpus.include, self._live.now.gpus.exclude)

    def _list_unused(self, gpus: Sequence[Gpu]) -> frozenset[GpuUuid]:
        sample = self._bus.read(NodeSample)
        readings = {one.uuid: one for one in sample.gpus} if sample is not None else {}
        return frozenset(gpu.uuid for gpu in gpus if is_unused(readings.get(gpu.uuid)))

    def _list_provable(self) -> frozenset[GpuUuid]:
        return self._list_unused(self._list_open())

    def _look_idle(
        self, free: Sequence[Gpu], unused: frozenset[GpuUuid], now: float
    ) -> tuple[tuple[Gpu, ProofStage] | None, float | None]:
        if self._idle is None:
            return None, None
        waits = {gpu.uuid: self._find_wait(gpu, now) for gpu in free}
        if not waits:
            return None, None
        gpu = min(free, key=lambda one: (waits[one.uuid], one.index))
        if waits[gpu.uuid] > 0:
            return None, max(_REST_SECONDS, waits[gpu.uuid])
        if gpu.uuid in unused:
            return (gpu, self._idle), None
        # A process without a pod has the GPU, or nobody knows: the GPU's free time begins anew.
        self._free[gpu.uuid] = now
        return None, _REST_SECONDS

    def _find_wait(self, gpu: Gpu, now: float) -> float:
        settings = self._live.now.proof
        pace = Pace(
            every_seconds=settings.every_seconds,
            free_seconds=settings.free_seconds,
            spread_seconds=settings.spread_seconds,
        )
        return find_wait(
            self._records.get(gpu.uuid),
            pace,
            find_share(self._node, gpu.uuid),
            free=now - self._free[gpu.uuid],
            running=now - self._began_at,
            wall_seconds=self._clock.wall(),
            braked_seconds=find_braked_since(self._bus.read(Offering), gpu.uuid),
        )

    def _view(self) -> NodeView:
        read = self._bus.read
        return NodeView(
            inventory=read(Inventory),
            driver=read(DriverState),
            health=read(HealthReport),
            offering=read(Offering),
            allocations=read(AllocationTable),
            fractions=read(FractionTable),
            claims=read(ReadyClaims),
            mig=read(MigState),
            mps=read(MpsState),
            repairs=read(RepairState),
        )

    async def _prove(self, gpu: Gpu, stage: ProofStage) -> None:
        self._publish()
        began, readings = self._clock.monotonic(), None
        with self._proof:
            readings = await self._prover.prove(gpu.uuid, plan_idle(stage))
        took, before = self._clock.monotonic() - began, self._records.get(gpu.uuid)
        if readings is None:
            record = note_given_up(before, took, self._clock.wall())
            self._counts[GIVEN_UP] += 1
            self._log.info("gpu_proof_given_up", gpu=gpu.uuid, seconds=round(took, 2))
        else:
            proof = ProofOf(
                gpu=gpu,
                stage=stage,
                readings=readings,
                took_seconds=took,
                ended_seconds=self._clock.wall(),
            )
            record = judge_proof(proof, before, self._list_alike(gpu))
            self._counts[record.verdict] += 1
            log = self._log.warning if record.verdict is ProofVerdict.FAILED else self._log.info
            log("gpu_proof_ended", gpu=gpu.uuid, verdict=record.verdict, reason=record.reason, seconds=round(took, 2))
        self._records[gpu.uuid], self._proving = record, None
        if readings is not None and record.verdict is ProofVerdict.FAILED:
            self._bus.publish_fact(GpuEventReported(gpu=gpu.uuid, kind=PROOF_FAILED), source=self.name)
        self._publish()
        await self._keep()
        self._waker.wake()

    def _list_alike(self, gpu: Gpu) -> list[ProofRecord]:
        """The records of the other GPUs of the model."""
        inventory = self._bus.read(Inventory)
        gpus = inventory.gpus if inventory is not None else ()
        alike = [one.uuid for one in gpus if one.name == gpu.name and one.uuid != gpu.uuid]
        return [self._records[uuid] for uuid in alike if uuid in self._records]

    def _publish(self, *, is_failing: bool = False) -> None:
        inventory = self._bus.read(Inventory)
        if inventory is not None:
            known = {*(gpu.uuid for gpu in inventory.gpus), *(gpu.uuid for gpu in inventory.vanished)}
            self._records = {uuid: record for uuid, record in self._records.items() if uuid in known}
        state = GpuProofs(
            gpus=dict(self._records),
            proving=self._proving.uuid if self._proving is not None else None,
            counts=dict(self._counts),
            is_before_binding=False if is_failing else self._binding.is_ready if self._binding is not None else None,
        )
        published = self._bus.publish_state(state, source=self.name)
        names = {gpu.uuid: name_device(gpu) for gpu in (inventory.gpus if inventory is not None else ())}
        records = {names.get(uuid, uuid): record for uuid, record in self._records.items()}
        failed = {name: f"{name}: {one.reason}" for name, one in records.items() if one.verdict is ProofVerdict.FAILED}
        slow = {name: f"{name}: {next(filter(None, one.slow[::-1]))}" for name, one in records.items() if one.is_slow}
        self._conditions.replace(FAILED, failed, cause=published)
        self._conditions.replace(SLOW, slow, cause=published)

    async def _recall(self) -> dict[GpuUuid, ProofRecord]:
        stored = await self._store.read()
        for trouble in stored.troubles:
            self._log.warning("proofs_not_read", reason=trouble)
        if stored.body is None:
            return {}
        try:
            return json.decode(stored.body, type=dict[GpuUuid, ProofRecord])
        except DecodeError as error:
            outcome = await self._store.discard(f"not a table of proofs: {error}")
            self._log.warning("proofs_not_read", reason=str(error), outcome=outcome)
            return {}

    async def _keep(self) -> None:
        """Make the proofs durable; with a failing disk a restart proves the GPUs again, and nothing else is lost."""
        self._conditions.show(NOT_KEPT, await self._store.write(json.encode(self._records, order="sorted")))
