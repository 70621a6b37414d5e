"""Proves GPUs one after the other: the driver's readings before and after, and the prover in between.

Owns the order of the work. Processes on a GPU are looked for once more right before the prover starts.
"""

import platform
from collections.abc import Callable, Mapping, Sequence

import anyio
from msgspec.structs import replace

from nodeagent.app.hardware import Hardware, choose_hardware
from nodeagent.app.host_root import find_driver_roots
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.edge.cuda.child import ProverChild
from nodeagent.edge.host.driver.cuda_check import LIBRARY
from nodeagent.edge.host.driver.roots import find_library
from nodeagent.model.errors import DriverError
from nodeagent.model.events import XidReported
from nodeagent.model.gpu import Gpu
from nodeagent.model.proof import GpuProof, ProofCheck, ProofPlan, ProofStage, ProofVerdict, ProverReadings
from nodeagent.model.telemetry import GpuSample
from nodeagent.model.values import Value
from nodeagent.rules.ids import name_device
from nodeagent.rules.proof.floors import FloorTable, find_floors
from nodeagent.rules.proof.judge import judge_readings
from nodeagent.rules.proof.speeds import describe_slow_peers, judge_speeds
from nodeagent.rules.proof.stages import judge_growth, judge_instant, plan_neighbour

ListUsers = Callable[[Gpu, GpuSample | None], tuple[str, ...]]
"""Who uses a GPU now; empty for an idle GPU."""


class ProofOrder(Value, frozen=True):
    """What a person asks for."""

    wanted: tuple[Gpu, ...]
    """The GPUs to prove, as the agent knows them, or as the driver shows them without an agent."""
    stage: ProofStage
    plan: ProofPlan | None
    """The prover's work; `None` for the driver's readings alone."""
    floors: tuple[FloorTable, ...] = ()
    known_by_agent: bool = False


class ProofResult(Value, frozen=True):
    """The outcome for the wanted GPUs, and what the prover read of these and of the GPUs to compare with."""

    proofs: tuple[GpuProof, ...]
    readings: Mapping[str, ProverReadings]
    """By UUID."""
    names: Mapping[str, str]
    """The names of all GPUs, by UUID."""


def prove_gpus(settings: Settings, order: ProofOrder, list_users: ListUsers) -> ProofResult:
    """Prove each wanted GPU.

    Raises:
        DriverError: The driver cannot be asked.
    """
    # Every sample has fresh counts of errors, though the agent's next look at these would be later.
    rare = replace(settings.inventory, sample_seconds=2 * settings.health.poll_seconds)
    live = LiveSettings(replace(settings, inventory=rare))
    hardware = choose_hardware(live, settings.node.name or platform.node(), 1)
    library = find_library(find_driver_roots(settings).driver, LIBRARY)
    prover = ProverChild(library, dict(settings.driver.worker_environment))
    return anyio.run(ProofSession(hardware, prover, list_users).run, order)


class ProofSession:
    """One use of the driver, for one order."""

    def __init__(self, hardware: Hardware, prover: ProverChild, list_users: ListUsers) -> None:
        self._hardware, self._prover, self._list_users = hardware, prover, list_users
        self._gpus: tuple[Gpu, ...] = ()
        self._readings: dict[str, ProverReadings] = {}
        self._xids: list[XidReported] = []
        self._unwatched = ""

    async def run(self, order: ProofOrder) -> ProofResult:
        """Prove each wanted GPU, and compare the speeds at last.

        Raises:
            DriverError: The driver cannot be asked.
        """
        failed: DriverError | None = None
        proofs: list[GpuProof] = []
        async with anyio.create_task_group() as tasks:
            await tasks.start(self._hardware.run)
            try:
                self._gpus = (await self._hardware.gpus.read_inventory()).gpus
                tasks.start_soon(self._watch_events)
                proofs = [await self._prove(gpu, order) for gpu in order.wanted]
                proofs = [await self._compare(proof, order) for proof in proofs]
            except DriverError as error:
                failed = error  # raised outside, so that no group of errors wraps it
            tasks.cancel_scope.cancel()
        if failed is not None:
            raise failed
        names = {str(gpu.uuid): name_device(gpu) for gpu in self._gpus}
        return ProofResult(proofs=tuple(proofs), readings=self._readings, names=names)

    async def _watch_events(self) -> None:
        try:
            async for event in self._hardware.gpus.events():
                if isinstance(event, XidReported):
                    self._xids.append(event)
        except DriverError as error:
            self._unwatched = f"XIDs were not watched for: {error}"

    async def _prove(self, known: Gpu, order: ProofOrder) -> GpuProof:
        """The readings of one GPU, and all checks but those of speeds, which need the other GPUs."""
        samples = await self._read_samples()
        gpu = self._find(known)
        alike = [samples[one.uuid] for one in self._list_alike(gpu) if one.uuid in samples]
        before = known if order.known_by_agent else None
        sample = samples.get(gpu.uuid)
        checks = judge_instant(gpu, sample, before, alike)
        proof = GpuProof(gpu=gpu.uuid, index=gpu.index, model=gpu.name, stage=order.stage, checks=checks)
        if order.plan is None or gpu.lost or sample is None or sample.lost:
            return proof
        if reason := self._refuse(gpu, samples):
            check = ProofCheck(
                name="prover", verdict=ProofVerdict.UNTESTED, measured=reason, expected="nobody uses the GPU"
            )
            return replace(proof, checks=(*checks, check))
        peers = tuple(str(one.uuid) for one in self._list_idle(gpu, samples)) if order.plan.with_peers else ()
        readings = await self._prover.prove(gpu.uuid, order.plan, peers)
        self._readings[gpu.uuid] = readings
        after = (await self._read_samples()).get(gpu.uuid)
        names = {str(one.uuid): name_device(one) for one in self._gpus}
        xids = [event.xid for event in self._xids if event.gpu == gpu.uuid]
        growth = judge_growth(sample, after, xids)
        notes = [*describe_slow_peers(readings, names), *readings.unreached]
        notes += ["copies to other GPUs were not tried: no other GPU is idle"] * (order.plan.with_peers and not peers)
        notes += [self._unwatched] * bool(self._unwatched)
        found = (*checks, *judge_readings(readings, order.plan, names), growth)
        return replace(proof, checks=found, notes=tuple(notes), readings=readings)

    async def _compare(self, proof: GpuProof, order: ProofOrder) -> GpuProof:
        """The proof with the checks of speeds, for which idle GPUs of the model show theirs."""
        if proof.readings is None or order.plan is None or not proof.readings.speeds:
            return proof
        gpu = next(one for one in self._gpus if one.uuid == proof.gpu)
        samples = await self._read_samples()
        alike = self._list_alike(gpu)
        for other in alike:
            if other.uuid not in self._readings and not self._refuse(other, samples):
                self._readings[other.uuid] = await self._prover.prove(other.uuid, plan_neighbour(order.plan))
        others = [self._readings[other.uuid] for other in alike if other.uuid in self._readings]
        judged = judge_speeds(gpu, proof.readings, others, find_floors(gpu.name, order.floors))
        return replace(proof, checks=(*proof.checks, *judged.checks), notes=(*proof.notes, *judged.notes))

    async def _read_samples(self) -> dict[str, GpuSample]:
        return {one.uuid: one for one in (await self._hardware.gpus.read_sample()).gpus}

    def _find(self, known: Gpu) -> Gpu:
        """The GPU at the place of a known GPU, as the driver shows it now."""
        for gpu in self._gpus:
            if gpu.pci.address == known.pci.address:
                return gpu
        return replace(known, lost=known.lost or "the driver no longer lists the GPU")

    def _list_alike(self, gpu: Gpu) -> list[Gpu]:
        return [one for one in self._gpus if one.name == gpu.name and one.uuid != gpu.uuid and not one.lost]

    def _list_idle(self, gpu: Gpu, samples: Mapping[str, GpuSample]) -> list[Gpu]:
        return [one for one in self._gpus if one.uuid != gpu.uuid and not self._refuse(one, samples)]

    def _refuse(self, gpu: Gpu, samples: Mapping[str, GpuSample]) -> str:
        """Why the prover may not use the GPU; empty for an idle GPU."""
        users: Sequence[str] = self._list_users(gpu, samples.get(gpu.uuid))
        if gpu.lost or gpu.uuid not in samples:
            return gpu.lost or "the driver gives no reading"
        if gpu.mig_enabled:
            return "MIG is on: the GPU can only be used as MIG devices"
        return f"in use by {', '.join(users)}" if users else ""
