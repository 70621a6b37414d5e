"""All that gives GPUs out, wired as in the agent, on real sockets and a real disk, with the stand-in kubelet."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from msgspec.structs import replace

from nodeagent.components.allocations.component import Allocations
from nodeagent.components.allocations.journal_task import Journal
from nodeagent.components.allocations.ledger import Node
from nodeagent.components.cdi.component import Cdi
from nodeagent.components.deviceplugin.component import DevicePlugins, OtherResources
from nodeagent.components.fractions.component import FractionHandles, Fractions
from nodeagent.components.fractions.plugin_task import FractionPlugins
from nodeagent.components.fractions.poll_task import Sources
from nodeagent.components.fractions.reconcile_task import Files
from nodeagent.components.offering.component import OfferingComponent
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.plugin import KubeletSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.clock import SystemClock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.component import Component
from nodeagent.core.life.handle import Handle
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.edge.host.files.cdi_files import SpecFiles
from nodeagent.edge.host.files.journal_disk import JournalDisk
from nodeagent.edge.host.vgpu.fraction_folders import HostFractionFolders
from nodeagent.edge.host.vgpu.limits_file import DeviceLimit, read_limits
from nodeagent.edge.kubelet.kubelet_state import KubeletState
from nodeagent.edge.kubelet.plugin_session import PluginSession
from nodeagent.edge.kubelet.proto.device_plugin_pb2 import ContainerAllocateResponse
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.errors import SpecsUnavailable
from nodeagent.model.fractions import ContainerState, PodContainer
from nodeagent.model.journal import Binding, FractionTable
from nodeagent.model.orders import SET_DOOR, AllocationModeCommand, OrderedMode
from nodeagent.model.plugin import AdvertisedResource, HandoutFacts
from nodeagent.model.ports import DevicePlugin
from nodeagent_sim.kubelet.checkpoint import parse_checkpoint
from nodeagent_sim.kubelet.kubelet import KubeletDown, StandInKubelet
from nodeagent_sim.kubelet.pods import AdmissionRefused, ContainerStartFailed, PodPhase
from tests.component.cdi.fakes import FakeDriverFiles
from tests.component.fractions.harness import FakeLibrary
from tests.support.files.driver_files import make_files
from tests.support.fractions import make_health, make_settings
from tests.support.gpus import make_node
from tests.support.journals import CORE, MEMORY
from tests.support.placement import GIB

GPU = "nvidia.com/gpu"
MEMORY_BYTES = 80 * GIB


class Given:
    """What one container was given, as its runtime would find it."""

    def __init__(self, gpus: tuple[str, ...], limits: tuple[DeviceLimit, ...], folder: str) -> None:
        self.gpus, self.limits, self.folder = gpus, limits, folder


class Agent:
    """May be ended and begun again on the same node."""

    def __init__(self, root: Path, kubelet: StandInKubelet, settings: Settings) -> None:
        self.state_dir, self.cdi_dir, self.kubelet = root / "state", root / "cdi", kubelet
        self.live = LiveSettings(replace(settings, kubelet=KubeletSettings(pod_resources_poll_seconds=0.5)))
        board = make_node(8)
        self.inventory = replace(board, gpus=tuple(replace(gpu, memory_total_bytes=MEMORY_BYTES) for gpu in board.gpus))
        self.bus, self.conditions = self._make_bus()
        self.orders = OrderHandlers()

    def _make_bus(self) -> tuple[Bus, Conditions]:
        bus = Bus(SystemClock())
        return bus, Conditions(bus, SystemClock(), CATALOGUE)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.bus, self.conditions = self._make_bus()
        for state in (self.inventory, make_health(self.inventory), DriverState(phase=DriverPhase.READY)):
            self.bus.publish_state(state, source="test")
        account = KubeletState(self.kubelet.device_plugins_dir, self.kubelet.pod_resources_socket)
        workers = [WorkerThread("cdi directories"), WorkerThread("part folders")]
        try:
            async with anyio.create_task_group() as tasks:
                for component in self._build(account, workers):
                    await tasks.start(lambda task_status, each=component: each.run(task_status=task_status))
                await self.wait_registered()
                yield
                tasks.cancel_scope.cancel()
        finally:
            account.close()
            for worker in workers:
                worker.close()

    def _build(self, account: KubeletState, workers: list[WorkerThread]) -> list[Component]:
        clock, plugins = SystemClock(), FractionPlugins()
        specs: Handle[Cdi] = Handle(SpecsUnavailable)
        common = (self.bus, self.conditions)
        journal = self.journal = Journal(
            *common, clock, self.live, account,
            open_store=lambda: JournalDisk(self.state_dir, write_seconds=30.0),
            read_node=lambda: Node("machine", "boot"),
        )  # fmt: skip
        directories = SpecFiles(self.cdi_dir, others=(), worker=workers[0])
        return [
            Allocations(*common, clock, self.live, journal),
            OfferingComponent(*common, clock, self.live, journal, self.orders),
            Cdi(*common, self.live, FakeDriverFiles(make_files(8)), directories, handle=specs),
            DevicePlugins(
                *common, self.live, journal,
                serve=self._serve, read_facts=self._read_facts, others=OtherResources(plugins),
            ),
            Fractions(
                *common, clock, self.live, FractionHandles(plugins, self.orders), journal,
                Files(specs.get, HostFractionFolders(self.state_dir / "parts", workers[1]), FakeLibrary()),
                Sources(account, self._list_containers),
            ),
        ]  # fmt: skip

    async def _list_containers(self) -> tuple[PodContainer, ...]:
        """Those of pods that run; init containers have ended by then."""
        return tuple(
            PodContainer(
                id=f"{pod.uid}/{spec.name}",
                pod_uid=pod.uid,
                name=spec.name,
                state=ContainerState.EXITED if spec.init else ContainerState.RUNNING,
            )
            for pod in self.kubelet.pods
            if pod.phase is PodPhase.RUNNING
            for spec in pod.containers
        )

    async def _serve(self, plugin: DevicePlugin, endpoint: str, report: Callable[[AdvertisedResource], None]) -> None:
        def fail(method: str, error: Exception) -> None:
            raise AssertionError(method) from error

        await PluginSession(plugin, self.kubelet.device_plugins_dir, endpoint, report=report, report_crash=fail).run()

    async def _read_facts(self, _: Settings) -> HandoutFacts:
        return HandoutFacts()

    async def choose(self, gpu: str, door: OrderedMode) -> str:
        return await self.orders.give(SET_DOOR, AllocationModeCommand(gpu=gpu, door=door, who="me"))

    @property
    def table(self) -> FractionTable:
        table = self.journal.parts()
        assert table is not None
        return table

    def binding(self, name: str) -> Binding:
        """The one of this pod's container; a source may have been silent when it started, so by name or by uid."""
        (pod,) = [each for each in self.kubelet.pods if each.name == name]
        (found,) = [each for each in self.table.bindings.values() if name == each.pod.name or pod.uid == each.pod.uid]
        return found

    async def wait_named(self) -> None:
        """Return when it is known by name who has parts: that may be found out after a start was answered."""
        with self.bus.watch(FractionTable, client="test") as tables:
            async for table in tables:
                if all(each.pod.name for each in table.value.bindings.values()):
                    return

    async def end_pod(self, name: str) -> None:
        """The pod is deleted, and has been found to have ended: that takes two looks, ten seconds apart."""
        number = self.binding(name).number
        self.kubelet.delete_pod("team", name)
        await self.journal.release({number: "the pod has ended"})

    def is_registered(self) -> bool:
        """Whether the kubelet's present run offers all that there is."""
        offers = self.kubelet.offers()
        return all(name in offers and offers[name].allocatable > 0 for name in self.list_expected())

    def list_expected(self) -> list[str]:
        """What is on offer, by the configuration."""
        rules = self.live.now.doors.rules
        whole = [GPU] if rules and "all" not in rules[0].gpus else []
        return [*whole, CORE, MEMORY]

    async def wait_registered(self) -> None:
        await self.kubelet.wait_until(self.is_registered)

    def read_given(self, uid: str, container: str = "main") -> Given:
        """What the name that a container was told means, by the files that its runtime reads."""
        return self.read_all()[uid, container]

    def read_all(self) -> dict[tuple[str, str], Given]:
        """The same of all containers that the kubelet knows, by pod and container."""
        edits = {
            f"{spec['kind']}={device['name']}": device["containerEdits"]
            for path in self.cdi_dir.glob("*.json")
            for spec in (json.loads(path.read_text()),)
            for device in spec["devices"]
        }
        return {
            (entry.pod_uid, entry.container): self._read_edits(edits.get(name, {}))
            for entry in parse_checkpoint(self.kubelet.checkpoint_file.read_bytes()).entries
            for name in [device.name for device in ContainerAllocateResponse.FromString(entry.answer).cdi_devices]
        }

    def _read_edits(self, edits: dict[str, Any]) -> Given:
        by_node = {f"/dev/nvidia{gpu.minor}": str(gpu.uuid) for gpu in self.inventory.gpus}
        gpus = tuple(by_node[node["path"]] for node in edits.get("deviceNodes", ()) if node["path"] in by_node)
        mounts = {mount["containerPath"]: mount["hostPath"] for mount in edits.get("mounts", ())}
        limits = mounts.get("/run/nodeagent/vgpu/limits", "")
        return Given(gpus, read_limits(Path(limits)).devices if limits else (), limits)


async def run_pod(agent: Agent, name: str, resources: Mapping[str, int]) -> None:
    """As a deployment and a kubelet do: a pod that is refused is made anew, a container that fails is started again."""
    kubelet, is_admitted = agent.kubelet, False
    while True:
        await kubelet.wait_until(agent.is_registered)
        try:
            if is_admitted:
                await kubelet.start_containers("team", name)
            else:
                await kubelet.add_pod("team", name, resources)
        except AdmissionRefused:
            kubelet.delete_pod("team", name)
        except KubeletDown:
            is_admitted = any(pod.name == name for pod in kubelet.pods)
        except ContainerStartFailed:
            is_admitted = True
        else:
            return
        await anyio.sleep(0.05)


@asynccontextmanager
async def node(short_dir: Path, *indexes: int) -> AsyncIterator[tuple[StandInKubelet, Agent]]:
    """A kubelet and an agent that is not running yet; these GPUs are given in parts, or all."""
    kubelet = StandInKubelet(short_dir / "kubelet")
    async with anyio.create_task_group() as tasks:
        await tasks.start(kubelet.run)
        with anyio.fail_after(120):
            yield kubelet, Agent(short_dir, kubelet, make_settings(*indexes, limit_compute=True))
        tasks.cancel_scope.cancel()
