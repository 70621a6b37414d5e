"""Device plugin and allocation journal together, on real sockets and a real disk, with the stand-in kubelet."""

import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest

from nodeagent.app.wiring.kubelet import JoinedSources
from nodeagent.components.allocations.component import Allocations
from nodeagent.components.allocations.journal_task import Journal
from nodeagent.components.allocations.ledger import Node
from nodeagent.components.deviceplugin.component import DevicePlugins, OtherResources
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.plugin import KubeletSettings
from nodeagent.config.sections.sharing import SharedResource, SharingSettings, TimeSlicing
from nodeagent.core.channels.bus import Bus
from nodeagent.core.clock import SystemClock
from nodeagent.core.conditions import Conditions
from nodeagent.edge.host.files import journal_disk
from nodeagent.edge.host.files.journal_disk import JournalDisk
from nodeagent.edge.kubelet.kubelet_state import KubeletState
from nodeagent.edge.kubelet.plugin_session import PluginSession
from nodeagent.edge.kubelet.proto.device_plugin_pb2 import AllocateRequest, ContainerAllocateRequest
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.health import DeviceHealth, HealthReport, Verdict
from nodeagent.model.plugin import AdvertisedResource, HandoutFacts
from nodeagent.model.ports import DevicePlugin
from nodeagent_sim.kubelet.kubelet import StandInKubelet
from nodeagent_sim.kubelet.pods import AdmissionRefused
from tests.support.gpus import gpu_uuid, make_node
from tests.support.waiting import in_thread
from tests.support.wire.go_client import GoClient

GPU = "nvidia.com/gpu"


class Agent:
    """The two components, wired as in the agent; may be ended and begun again on the same node."""

    def __init__(self, root: Path, kubelet: StandInKubelet, settings: Settings | None = None) -> None:
        self.state_dir, self.kubelet = root / "state", kubelet
        self.live = LiveSettings(settings or Settings(kubelet=KubeletSettings(pod_resources_poll_seconds=0.5)))
        self.inventory = make_node(8)
        self.bus = Bus(SystemClock())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        clock = SystemClock()
        self.bus = Bus(clock)
        conditions = self.conditions = Conditions(self.bus, clock, CATALOGUE)
        self.bus.publish_state(self.inventory, source="test")
        account = KubeletState(self.kubelet.device_plugins_dir, self.kubelet.pod_resources_socket)
        journal = self.journal = Journal(
            self.bus, conditions, clock, self.live, account,
            open_store=lambda: JournalDisk(self.state_dir, write_seconds=30.0),
            read_node=lambda: Node("machine", "boot"),
        )  # fmt: skip
        keeper = Allocations(self.bus, conditions, clock, self.live, journal)
        plugins = DevicePlugins(
            self.bus, conditions, self.live, journal,
            serve=self._serve, read_facts=self._read_facts, others=OtherResources(JoinedSources(())),
        )  # fmt: skip
        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(lambda task_status: keeper.run(task_status=task_status))
                await tasks.start(lambda task_status: plugins.run(task_status=task_status))
                await self.wait_registered()
                yield
                tasks.cancel_scope.cancel()
        finally:
            account.close()

    async def _serve(self, plugin: DevicePlugin, endpoint: str, report: Callable[[AdvertisedResource], None]) -> None:
        def fail(method: str, error: Exception) -> None:
            raise AssertionError(method) from error

        await PluginSession(plugin, self.kubelet.device_plugins_dir, endpoint, report=report, report_crash=fail).run()

    async def _read_facts(self, _: Settings) -> HandoutFacts:
        return HandoutFacts()

    def holders(self) -> dict[str, str]:
        """Device to pod, as the agent knows it."""
        table = self.bus.latest(AllocationTable)
        return {
            device: allocation.pod.name if allocation.pod else "-"
            for allocation in (table.value.allocations if table else ())
            for device in allocation.devices
        }

    async def wait_registered(self) -> None:
        """Return when the kubelet's present run offers all GPUs."""
        await self.kubelet.wait_until(
            lambda: GPU in self.kubelet.offers() and self.kubelet.offers()[GPU].allocatable > 0
        )


@asynccontextmanager
async def node(short_dir: Path, settings: Settings | None = None) -> AsyncIterator[tuple[StandInKubelet, Agent]]:
    kubelet = StandInKubelet(short_dir / "kubelet")
    async with anyio.create_task_group() as tasks:
        await tasks.start(kubelet.run)
        with anyio.fail_after(30):
            yield kubelet, Agent(short_dir, kubelet, settings)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("patience_seconds", [0.0, 30.0], ids=["awaited", "stood still for"])
async def test_no_answer_leaves_before_the_journal_holds_it(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, patience_seconds: float
) -> None:
    """As long as the sync of its record has not returned, an Allocate has no answer; then it has."""
    monkeypatch.setattr(journal_disk, "PATIENCE_SECONDS", patience_seconds)
    syncing, released, answered = threading.Event(), threading.Event(), threading.Event()

    def sync(_: int) -> None:
        syncing.set()
        released.wait(20)

    def allocate(socket: Path, device: str) -> None:
        client = GoClient(socket)
        request = AllocateRequest(container_requests=[ContainerAllocateRequest(devices_ids=[device])])
        client.call("/v1beta1.DevicePlugin/Allocate", request.SerializeToString())
        answered.set()
        client.close()

    def watch() -> bool:
        """In a thread of its own, because the loop may stand still; whether an answer came too early."""
        assert syncing.wait(20)
        came_early = answered.wait(0.1)
        released.set()
        return came_early

    async with node(short_dir) as (kubelet, agent), agent.running():
        device = str(agent.inventory.gpus[0].uuid)
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", sync)
            asking = partial(allocate, kubelet.device_plugins_dir / "nvidia-gpu.sock", device)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(in_thread, asking)
                assert not await in_thread(watch)
        assert answered.is_set()
        assert agent.holders() == {device: "-"}
        assert device.encode() in (agent.state_dir / "allocations.journal").read_bytes()


async def test_racing_pods_get_a_gpu_each_and_are_known_by_name(short_dir: Path) -> None:
    """Eight identical pods race for eight GPUs: each gets one, and who holds what is known when they run."""
    async with node(short_dir) as (kubelet, agent), agent.running():
        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(kubelet.add_pod, "team", f"racer-{number}", {GPU: 1})
        assert agent.holders() == {device: pod.name for device, pod in kubelet.holders().items()}
        assert len(agent.holders()) == 8
        table = agent.bus.latest(AllocationTable)
        assert table is not None
        uids = {allocation.pod.uid for allocation in table.value.allocations if allocation.pod}
        assert uids == {pod.uid for pod in kubelet.pods}


async def test_a_restarted_agent_knows_its_allocations(short_dir: Path) -> None:
    """Pods that run while the agent is away are still theirs when it is back, and the list is as before."""
    async with node(short_dir) as (kubelet, agent):
        async with agent.running():
            await kubelet.add_pod("team", "train", {GPU: 4})
            before = agent.holders()
        async with agent.running():
            assert agent.holders() == before
            await kubelet.add_pod("team", "infer", {GPU: 4})
            assert len(agent.holders()) == 8


async def test_devices_of_a_deleted_pod_go_to_the_next_at_once(short_dir: Path) -> None:
    """A kubelet that has not restarted is trusted: nothing stands between a deleted pod and its successor."""
    async with node(short_dir) as (kubelet, agent), agent.running():
        await kubelet.add_pod("team", "web-0", {GPU: 8})
        kubelet.delete_pod("team", "web-0")
        await kubelet.add_pod("team", "web-0", {GPU: 8})
        assert set(agent.holders().values()) == {"web-0"}


async def test_init_containers_hand_their_devices_on(short_dir: Path) -> None:
    """The same devices are asked for again within one pod; they have one holder in the end."""
    async with node(short_dir) as (kubelet, agent), agent.running():
        await kubelet.add_pod("team", "train", {GPU: 2}, init_resources={GPU: 2})
        assert set(agent.holders().values()) == {"train"}
        assert len(agent.holders()) == 2


async def lose_the_memory(place: Path) -> None:
    """Pods run, the kubelet forgets them, pods come: new ones get other GPUs, and none when there are none."""
    async with node(place) as (kubelet, agent), agent.running():
        for number in range(4):
            await kubelet.add_pod("team", f"old-{number}", {GPU: 1})
        held = set(agent.holders())
        await kubelet.forget()
        await agent.wait_registered()
        for number in range(4):
            await kubelet.add_pod("team", f"new-{number}", {GPU: 1})
        assert not held & kubelet.holders().keys()
        with pytest.raises(AdmissionRefused, match="the kubelet has forgotten it"):
            await kubelet.add_pod("team", "one-too-many", {GPU: 1})


@pytest.mark.parametrize("round_number", range(5))
async def test_a_forgetful_kubelet_gives_no_gpu_twice(short_dir: Path, round_number: int) -> None:
    """Its memory lost, the kubelet takes held GPUs for free; nobody gets one that is held."""
    await lose_the_memory(short_dir / str(round_number))


@pytest.mark.nightly
@pytest.mark.timeout(900)
async def test_a_forgetful_kubelet_gives_no_gpu_twice_in_200_rounds(short_dir: Path) -> None:
    """The same, often enough for rare orders of events."""
    for round_number in range(200):
        await lose_the_memory(short_dir / str(round_number))


async def test_a_kubelet_that_remembers_goes_on_as_before(short_dir: Path) -> None:
    """After an ordinary restart nothing is refused and nothing is lost."""
    async with node(short_dir) as (kubelet, agent), agent.running():
        await kubelet.add_pod("team", "old", {GPU: 4})
        await kubelet.restart()
        await agent.wait_registered()
        await kubelet.add_pod("team", "new", {GPU: 4})
        assert len(set(agent.holders().values())) == 2
        assert len(agent.holders()) == 8


async def test_a_lost_journal_is_rebuilt_from_the_kubelet(short_dir: Path) -> None:
    """Without its state directory the agent learns from the kubelet who holds what."""
    async with node(short_dir) as (kubelet, agent):
        async with agent.running():
            await kubelet.add_pod("team", "train", {GPU: 3})
            before = agent.holders()
        for path in agent.state_dir.iterdir():
            path.unlink()
        async with agent.running():
            assert agent.holders() == before


async def test_an_unhealthy_gpu_is_taken_off_and_comes_back(short_dir: Path) -> None:
    """The kubelet's allocatable follows each verdict; capacity stays."""

    def report(verdict: Verdict) -> HealthReport:
        devices = (
            DeviceHealth(
                device=gpu_uuid(index), gpu=gpu_uuid(index), since_seconds=0.0,
                verdict=verdict if index == 3 else Verdict.HEALTHY,
            )
            for index in range(8)
        )  # fmt: skip
        return HealthReport(generation=1, devices=tuple(devices))

    async with node(short_dir) as (kubelet, agent), agent.running():
        for verdict, allocatable in ((Verdict.UNHEALTHY, 7), (Verdict.HEALTHY, 8)):
            agent.bus.publish_state(report(verdict), source="test")
            await kubelet.wait_until(lambda wanted=allocatable: kubelet.offers()[GPU].allocatable == wanted)  # type: ignore[misc]  # a default binds the loop's value
            assert kubelet.offers()[GPU].capacity == 8


async def test_shares_are_offered_and_spread(short_dir: Path) -> None:
    """With time slicing eight pods get eight GPUs although 80 shares are on offer."""
    shared = TimeSlicing(resources=(SharedResource(name="gpu", replicas=10),))
    settings = Settings(sharing=SharingSettings(timeSlicing=shared))
    async with node(short_dir, settings) as (kubelet, agent), agent.running():
        assert kubelet.offers()[GPU].capacity == 80
        for number in range(8):
            await kubelet.add_pod("team", f"share-{number}", {GPU: 1})
        assert len({device.partition("::")[0] for device in agent.holders()}) == 8
