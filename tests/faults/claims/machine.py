"""A node that outlives its agent: journal, specifications, limits, and GPUs whose state stands in a file.

Everything between the kubelet's call and the disk is the agent's own. What is played is the world: the kubelet, the
API server, and GPUs that keep what they were told, as real ones do, until the machine is booted.
"""

import os
import pickle
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import TaskStatus
from msgspec.structs import replace

from nodeagent.components.allocations.component import Allocations
from nodeagent.components.allocations.journal_task import Journal
from nodeagent.components.allocations.ledger import Node
from nodeagent.components.cdi.component import Cdi
from nodeagent.components.claims.make import Makers
from nodeagent.components.claims.metadata import ClaimMetadata
from nodeagent.components.claims.sharing import LimitsFolders, TimeSlices
from nodeagent.components.mig.component import ClusterAccess, Mig, MigFiles, MigHandles
from nodeagent.components.mps.component import Mps
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.claims import ClaimsSettings
from nodeagent.config.sections.containers import CdiSettings
from nodeagent.config.sections.mig import MigSettings
from nodeagent.config.sections.mps import MpsSettings
from nodeagent.config.sections.plugin import DevicePluginSettings
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.clock import SystemClock
from nodeagent.core.life.handle import Handle
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.edge.host.files.cdi_files import SpecFiles
from nodeagent.edge.host.files.journal_disk import JournalDisk
from nodeagent.edge.host.files.metadata_files import METADATA_FOLDERS, HostMetadataFiles
from nodeagent.edge.host.vgpu.fraction_folders import HostFractionFolders
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.errors import ControlRefused, MpsRefused, SpecsUnavailable
from nodeagent.model.events import GpuSeenStale, MigChangeEnded
from nodeagent.model.gpu import ComputeMode, Inventory
from nodeagent.model.health import HealthReport
from nodeagent.model.ids import GpuUuid
from nodeagent.model.mig import Write
from nodeagent.model.ports import GpuAccess
from nodeagent.rules.cdi_names import CLAIM_FILES, FRACTION_FILES
from nodeagent.rules.mig.layouts import LayoutsRead
from nodeagent_sim.gpus.profile import load_profile
from nodeagent_sim.gpus.source import SimulatedGpus
from nodeagent_sim.mps import SimulatedMps
from nodeagent_sim.node import MadeUpDriverFiles
from tests.component.claims.harness import FakeApi, World
from tests.component.fractions.harness import FakeLibrary
from tests.component.mig.harness import Store
from tests.support.claims import DRIVER, behind_claims
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from nodeagent.model.ports import PartitionMaking

PROFILE: Final = replace(load_profile("dgx-h100"), jobs=False)


class KeptGpus(SimulatedGpus):
    """GPUs that are as somebody left them, whoever died since."""

    def __init__(self, place: Path) -> None:
        super().__init__(PROFILE)
        self._place = place
        if place.exists():
            self._world = pickle.loads(place.read_bytes())

    async def write_partition(self, gpu: GpuUuid, write: Write) -> int:
        """Cut one, and remember it."""
        made = await super().write_partition(gpu, write)
        self._keep()
        return made

    async def compute_mode(self, gpu: GpuUuid, mode: ComputeMode | None = None) -> ComputeMode:
        """Say who may use one, and remember it."""
        before = await super().compute_mode(gpu, mode)
        if mode is not None:
            self._keep()
        return before

    async def set_time_slice(self, gpu: GpuUuid, number: int) -> None:
        """Say how long each has its turn, and remember it."""
        await super().set_time_slice(gpu, number)
        self._keep()

    def read_time_slice(self, gpu: GpuUuid) -> int:
        return self._world.find_gpu(gpu).time_slice

    def _keep(self) -> None:
        """By calls that are counted as steps: a driver's call has been made, or has not."""
        fresh = self._place.with_name("fresh")
        fresh.write_bytes(pickle.dumps(self._world))
        os.rename(fresh, self._place)  # noqa: PTH104 - looked up when it is called


class Machine:
    """Its disk; `boot` is which boot of it this is."""

    def __init__(self, place: Path, boot: str = "boot-1") -> None:
        self.boot = boot
        self.state, self.specs, self.shares = place / "state", place / "run" / "cdi", place / "state" / "shares"
        self.metadata, self.gpus = self.state / METADATA_FOLDERS, place / "gpus"
        for directory in (self.state, self.specs.parent):
            directory.mkdir(parents=True, exist_ok=True)

    def reboot(self) -> "Machine":
        """What was below /run is gone, and GPUs are as they come out of their box."""
        shutil.rmtree(self.specs, ignore_errors=True)
        self.gpus.unlink(missing_ok=True)
        return Machine(self.state.parent, boot=f"{self.boot}-again")

    def list_specs(self) -> list[str]:
        """The files of claims that runtimes would find."""
        return sorted(one.name for one in self.specs.glob("k8s.gpu.nvidia.com-claim_*"))

    def list_metadata(self) -> list[str]:
        """The claims and requests that containers can read about."""
        return sorted(str(one.relative_to(self.metadata)) for one in self.metadata.glob("*/*"))

    def list_replicas(self) -> list[str]:
        """The claims that containers are held to."""
        return sorted(one.name for one in self.shares.iterdir()) if self.shares.exists() else []


class Agent(World):
    """One life of the agent on it."""

    def __init__(self, machine: Machine, api: FakeApi) -> None:
        super().__init__(SystemClock(), Inventory(generation=0, gpus=()))  # type: ignore[arg-type]  # a real clock
        self.machine, self.api, self.cards = machine, api, KeptGpus(machine.gpus)
        settings = Settings(
            claims=ClaimsSettings(enabled=True, mig_on_demand=True, shares=True, metadata_files="true"),
            mig=MigSettings(manage=True),
            mps=MpsSettings(claims=True),
            cdi=CdiSettings(dir=machine.specs),
            device_plugin=DevicePluginSettings(mps_root=machine.specs.parent / "mps"),
        )
        self.live = LiveSettings(settings)
        self._workers = [WorkerThread(name) for name in ("cdi directories", "cdi files", "shares")]
        self.cdi: Handle[Cdi] = Handle(SpecsUnavailable)
        self.mig: Handle[PartitionMaking] = Handle(lambda: ControlRefused("there is no component"))
        self.daemons: Handle[Mps] = Handle(lambda: MpsRefused("there is no component"))
        folders = HostFractionFolders(machine.shares, self._workers[2])
        self.makers = Makers(
            specs=self.cdi.get,
            metadata=ClaimMetadata(
                HostMetadataFiles(machine.metadata, self._workers[2]),
                DRIVER,
                None,
            ),
            partitions=self.mig.get,
            mps=self.daemons.get,
            shares=LimitsFolders(self.live, folders, FakeLibrary()),
            gives_shares=True,
            turns=TimeSlices(self.cards),
            sets_turns=True,
        )

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator["Agent"]:
        """From its start, with everything recovered, to its orderly end."""
        self.journal = Journal(
            self.bus, self.conditions, self.clock, self.live, self.kubelet,  # type: ignore[arg-type]  # as far as it is used
            open_store=lambda: JournalDisk(self.machine.state), read_node=lambda: Node("machine", self.machine.boot),
        )  # fmt: skip
        keeper = Allocations(self.bus, self.conditions, self.clock, self.live, self.journal)
        files = SpecFiles(
            self.machine.specs,
            others=(),
            worker=self._workers[0],
            writer=self._workers[1],
            passing=(FRACTION_FILES, CLAIM_FILES),
        )
        async with AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(tasks.cancel_scope.cancel)
            await tasks.start(lambda *, task_status: keeper.run(task_status=task_status))
            await self._look()
            cdi = Cdi(self.bus, self.conditions, self.live, MadeUpDriverFiles(), files, handle=self.cdi)
            self.claims = self.build()
            # Before the parts: what they take back as they start is followed, too.
            await tasks.start(self._follow)
            for part in (cdi, self._build_mig(), self._build_mps(), self.claims):
                await tasks.start(lambda *, task_status, part=part: part.run(task_status=task_status))
            await wait_until(lambda: self.mig.value is not None)
            yield self
        for worker in self._workers:
            worker.close()

    async def _look(self) -> None:
        readout = await self.cards.read_inventory()
        self.inventory = Inventory(generation=self.inventory.generation + 1, gpus=readout.gpus)
        self.bus.publish_state(DriverState(phase=DriverPhase.READY), source="driver")
        self.bus.publish_state(self.inventory, source="inventory")
        self.bus.publish_state(behind_claims(self.inventory.gpus), source="offering")
        self.bus.publish_state(HealthReport(generation=self.inventory.generation), source="health")

    async def _follow(self, *, task_status: TaskStatus[None]) -> None:
        """The GPUs are looked at anew whenever one was cut."""
        with self.bus.listen(MigChangeEnded, GpuSeenStale, client="inventory") as ends:
            task_status.started()
            async for _ in ends:
                await self._look()

    def _build_mig(self) -> Mig:
        return Mig(
            self.bus, self.conditions, self.clock, self.live, GpuAccess(self.cards),
            MigFiles(self.journal, Store(), _read_no_file),  # type: ignore[arg-type]  # as far as it is used
            MigHandles(OrderHandlers(), self.mig), ClusterAccess(),
        )  # fmt: skip

    def _build_mps(self) -> Mps:
        return Mps(
            self.bus, self.conditions, self.clock, self.live, SimulatedMps(),
            GpuAccess(self.cards), self.journal, self.daemons,
        )  # fmt: skip


async def _read_no_file() -> LayoutsRead:
    return LayoutsRead()
