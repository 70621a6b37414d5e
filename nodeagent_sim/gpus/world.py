"""The state of the simulated node, moved on by `advance`. Deterministic: same seed, same history.

Owns GPUs, driver and holders, and the rule that time passes in equal steps, so that the state at a moment does not
depend on the number of earlier readings.
Refuses clocks, waiting and I/O: `source` brings those.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from nodeagent.model.errors import GpuUnknown
from nodeagent.model.gpu import NvLink
from nodeagent.model.ports import ProcessPlace
from nodeagent_sim.gpus.containers import FractionWork, SimulatedContainers
from nodeagent_sim.gpus.gpu_state import GpuFaults, GpuState
from nodeagent_sim.gpus.hardware import make_gpu_uuid, make_mig_uuid, make_seed
from nodeagent_sim.gpus.load import Tenant
from nodeagent_sim.gpus.mig_geometry import PlacedInstance, plan_layout
from nodeagent_sim.gpus.profile import Profile, Seat
from nodeagent_sim.gpus.topology import count_active_links, list_nvlinks

STEP_SECONDS = 0.5
CATCH_UP_STEPS = 240
"""After a longer gap the steps grow instead of their number, so that a resumed laptop does not hang here."""
AMPERE = 8
FOREIGN_PID = 9_000
"""Pid of a program without an allocation, on the first GPU; pids of jobs are higher."""
FOREIGN_NAME = "foreign"


@dataclass(slots=True)
class DriverConduct:
    """The driver's versions and faults."""

    module_version: str
    library_version: str
    loaded: bool = True
    fabric_pending: bool = False
    slow_seconds: float = 0.0
    hung_until: dict[str, float] = field(default_factory=dict)
    """By call, or `all`: the moment of the world when the call comes back."""
    refused_writes: dict[str, int] = field(default_factory=dict)
    """By the kind of partitioning call: how many more calls fail."""


class World:
    """A node of one profile, at one moment."""

    def __init__(self, profile: Profile, *, node_name: str = "simulated", seed: int = 0) -> None:
        self.profile = profile
        self.now_seconds = 0.0
        self._stepped_seconds = 0.0
        self._node_name, self._seed = node_name, seed
        self.crowd = SimulatedContainers()
        self.set_holders(None)
        self.driver = self._new_driver()
        self.gpus = [self._new_gpu(seat) for seat in profile.seats]
        for gpu in self.gpus:
            gpu.settle(works=profile.jobs)

    @property
    def present(self) -> list[GpuState]:
        """The GPUs in their slots."""
        return [gpu for gpu in self.gpus if not gpu.faults.unplugged]

    @property
    def listed(self) -> list[GpuState]:
        """The GPUs that the driver lists, lost GPUs among them."""
        return [gpu for gpu in self.present if not gpu.faults.hidden]

    def advance(self, to_seconds: float) -> None:
        """Let time pass until a moment; a moment in the past changes nothing."""
        self.now_seconds = max(self.now_seconds, to_seconds)
        steps = math.floor((self.now_seconds - self._stepped_seconds) / STEP_SECONDS)
        if steps == 0:
            return
        count = min(steps, CATCH_UP_STEPS)
        links = {gpu.seat.index: self.count_active_links(gpu) for gpu in self.gpus}
        for _ in range(count):
            for gpu in self.gpus:
                self._step(gpu, steps * STEP_SECONDS / count, links[gpu.seat.index])
        self._stepped_seconds += steps * STEP_SECONDS

    def set_holders(self, holders: Mapping[str, str] | None) -> None:
        """Set the devices that pods hold: held devices work, others rest. `None` gives the jobs back to the world."""
        idle: dict[str, str] | None = None if self.profile.jobs else {}
        self._holders = idle if holders is None else dict(holders)

    def set_works(self, works: tuple[FractionWork, ...]) -> None:
        """Set the containers at work on fractions of GPUs; a container with a changed fraction begins anew."""
        self.crowd.works = works
        for gpu in self.gpus:
            gpu.parts = {work: gpu.parts.get(work) or self._make_worker(work) for work in works if work.gpu == gpu.uuid}

    def find_places(self) -> dict[int, ProcessPlace]:
        """The pods of processes at work on fractions, and the processes without an allocation."""
        of_pods = {
            worker.pid: ProcessPlace(pod_uid=work.pod_uid)
            for gpu in self.gpus
            for work, worker in gpu.parts.items()
            if worker.pid
        }
        foreign = [gpu.seat.index for gpu in self.gpus if gpu.faults.foreign_mib]
        return of_pods | {FOREIGN_PID + index: ProcessPlace(name=FOREIGN_NAME) for index in foreign}

    def find_gpu(self, name: str) -> GpuState:
        """The GPU with this index, UUID or PCI address.

        Raises:
            GpuUnknown: No such GPU.
        """
        wanted = name.lower()
        for gpu in self.gpus:
            if wanted in (str(gpu.seat.index), gpu.uuid.lower(), gpu.seat.address):
                return gpu
        raise GpuUnknown(name, tuple(str(gpu.seat.index) for gpu in self.gpus))

    def list_links(self, gpu: GpuState) -> tuple[NvLink, ...]:
        """The GPU's present NVLinks."""
        return list_nvlinks(self.profile, gpu.seat, self._is_link_down)

    def count_active_links(self, gpu: GpuState) -> int:
        """The number of the GPU's working NVLinks."""
        return count_active_links(self.profile, gpu.seat, self._is_link_down)

    def change_layout(self, gpu: GpuState, names: tuple[str, ...] | None) -> None:
        """Change the MIG layout, or turn MIG off; every job on the GPU ends.

        Raises:
            ValueError: The layout does not fit the GPU.
        """
        plan_layout(gpu.seat.model, names or ())
        gpu.mig_layout = names
        gpu.layout_number += 1
        gpu.tenants = self._make_tenants(gpu)

    def unload_driver(self) -> None:
        """Unload the kernel module; every job ends."""
        self.driver.loaded = False
        for gpu in self.gpus:
            gpu.end_jobs()

    def load_driver(self, version: str) -> None:
        """Load the module in a version, and start every GPU afresh; lost GPUs are not even listed then."""
        self.driver.loaded = True
        self.driver.module_version = self.driver.library_version = version
        for gpu in self.gpus:
            gpu.energy_joules = 0.0
            if gpu.faults.lost:
                gpu.faults.hidden = True
            else:
                gpu.reset()

    def restore(self) -> None:
        """Clear every fault; lifetime counts stay, as on real boards."""
        self.driver = self._new_driver()
        self.crowd = SimulatedContainers(self.crowd.works)
        for gpu in self.gpus:
            wanted = self.profile.mig.get(gpu.seat.index)
            if gpu.mig_layout != wanted:
                self.change_layout(gpu, wanted)
            gpu.reset()
            gpu.faults = GpuFaults()

    def find_hang_end(self, call: str) -> float:
        """The moment when a call comes back; in the past for a call that does not hang."""
        return max(self.driver.hung_until.get(call, 0.0), self.driver.hung_until.get("all", 0.0))

    def _new_driver(self) -> DriverConduct:
        version = self.profile.driver.version
        return DriverConduct(module_version=version, library_version=version)

    def _new_gpu(self, seat: Seat) -> GpuState:
        uuid = make_gpu_uuid(self.profile.name, self._node_name, seat.index)
        gpu = GpuState(
            seat=seat,
            uuid=uuid,
            random=Random(make_seed(self._seed, uuid)),  # noqa: S311  # repeatable weather, not secrets
            mig_layout=self.profile.mig.get(seat.index),
        )
        gpu.tenants = self._make_tenants(gpu)
        return gpu

    def make_tenant(self, gpu: GpuState, placed: PlacedInstance, compute_instance_id: int, slices: int) -> Tenant:
        """An unused MIG device: so many slices of the compute of one GPU instance, and its memory."""
        share = placed.shape.row.multiprocessors / gpu.seat.model.multiprocessors
        return Tenant(
            uuid=make_mig_uuid(gpu.uuid, placed.gpu_instance_id, compute_instance_id, gpu.layout_number),
            random=Random(gpu.random.random()),  # noqa: S311  # repeatable weather, not secrets
            memory_mib=placed.shape.row.memory_mib,
            share=share * slices / placed.shape.shape.slices,
            instance=placed,
            compute_instance_id=compute_instance_id,
            compute_slices=slices,
        )

    def make_tenant_of_whole(self, gpu: GpuState) -> Tenant:
        """An unused GPU without partitions."""
        memory = gpu.seat.model.memory
        usable = memory.total_mib - memory.reserved_mib
        return Tenant(uuid=gpu.uuid, random=Random(gpu.random.random()), memory_mib=usable)  # noqa: S311  # as above

    def _make_worker(self, work: FractionWork) -> Tenant:
        seed = make_seed(self._seed, work.pod_uid, work.container, work.gpu)
        random = Random(seed)  # noqa: S311  # repeatable weather, not secrets
        return Tenant(uuid=work.gpu, random=random, memory_mib=work.memory_mib, share=work.share)

    def _make_tenants(self, gpu: GpuState) -> list[Tenant]:
        gpu.mig_pending = None
        if gpu.mig_layout is None:
            gpu.instances = {}
            return [self.make_tenant_of_whole(gpu)]
        placed = plan_layout(gpu.seat.model, gpu.mig_layout)
        gpu.instances = {one.gpu_instance_id: one for one in placed}
        return [self.make_tenant(gpu, one, 0, one.shape.shape.slices) for one in placed]

    def _is_link_down(self, index: int, link: int) -> bool:
        """Whether the link is down: by fault, or because the GPU at this end is gone, or (Ampere) partitioned."""
        gpu = self.gpus[index]
        partitioned = gpu.mig_layout is not None and gpu.seat.model.compute_capability[0] == AMPERE
        return partitioned or bool(gpu.faults.lost) or gpu.faults.unplugged or link in gpu.faults.links_down

    def _step(self, gpu: GpuState, seconds: float, active_links: int) -> None:
        if gpu.faults.lost or gpu.faults.unplugged or not self.driver.loaded:
            return
        for tenant in gpu.tenants:
            tenant.step(seconds, held=None if self._holders is None else tenant.uuid in self._holders)
        for work, worker in gpu.parts.items():
            worker.step(seconds, held=True)
            if work.pod in self.crowd.over_percent:
                worker.memory_used_mib = work.memory_mib * self.crowd.over_percent[work.pod] / 100
        gpu.step(seconds, active_links)
