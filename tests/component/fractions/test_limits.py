"""What holds containers to their parts: the library or a daemon, limits that change, and what both are told."""

from collections.abc import Sequence

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.components.fractions.limits_sync_task import RENEW_SECONDS
from nodeagent.model.errors import ControlRefused, FractionsUnavailable, NodeagentError
from nodeagent.model.events import FractionBound
from nodeagent.model.fractions import FractionLimit, LimitsFolder, MeasuredUtilization, PodRequest
from nodeagent.model.journal import Enforcement
from nodeagent.model.mps import MpsLimits, MpsPhase, MpsState
from nodeagent.model.telemetry import GpuSample, NodeSample, ProcessSample
from nodeagent.model.usage import ContainerUse, FractionUsage, FractionUse
from nodeagent.rules.mps.fractions import name_fraction_daemon, plan_fraction_access
from tests.component.fractions.harness import FakePods, World
from tests.support.fractions import make_settings, part
from tests.support.gpus import gpu_uuid
from tests.support.mps import daemon_of
from tests.support.placement import GIB

pytestmark = pytest.mark.virtual_time


async def test_the_library_is_mounted_where_it_holds_containers(world: World) -> None:
    """With the file that has it loaded; a pod may choose otherwise, and without it nothing starts that needs it."""
    pods = world.pods = FakePods()
    world.live.replace(make_settings(enforcement="library", allow_advise=True))
    async with world.running():
        held = await world.admit("train", 30, 32)
        free = await world.admit("infer", 30, 32)
        pods.put(
            PodRequest(pod=held.pod),
            PodRequest(pod=free.pod, annotations={"nodeagent.io/gpu-enforcement": "advise"}),
        )
        world.library.broken = "read-only file system"
        with pytest.raises(FractionsUnavailable, match="read-only file system"):
            await world.start(held)
        await world.start(free)
        world.library.broken = ""
        assert (await world.start(held)).enforcement is Enforcement.LIBRARY
        name = held.cdi_name.partition("=")[2]
        assert {mount.container_path for mount in world.specs.files[name][name][1]} == {
            "/run/nodeagent/vgpu/limits", "/run/nodeagent/vgpu/usage",
            "/run/nodeagent/vgpu/libvgpu.so", "/etc/ld.so.preload",
        }  # fmt: skip
        name = free.cdi_name.partition("=")[2]
        assert len(world.specs.files[name][name][1]) == 2


def tell_daemon(world: World, phase: MpsPhase, reason: str = "") -> None:
    """What whoever looks after daemons says of that of the first GPU."""
    uuid = gpu_uuid(0)
    daemon = replace(
        daemon_of(uuid, phase, reason),
        name=name_fraction_daemon(uuid),
        limits=MpsLimits(thread_percentage=30, memory_mib={uuid: 8192}),
        last_fault=reason,
    )
    world.tell(MpsState(daemons=(daemon,)))


async def test_a_container_that_mps_holds_waits_for_its_daemon(world: World) -> None:
    """It is told pipes and limits, and not before that is ready for it; the kubelet is told what is waited for."""
    world.live.replace(make_settings(enforcement="mps"))
    async with world.running():
        held = await world.admit("train", 30, 32)
        with pytest.raises(FractionsUnavailable, match=f"{gpu_uuid(0)}: nobody looks after MPS daemons"):
            await world.start(held)
        tell_daemon(world, MpsPhase.STARTING)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.start, held)
            await anyio.sleep(1)
            assert not world.specs.files
            tell_daemon(world, MpsPhase.READY)
        binding = await world.start(held)
        assert binding.enforcement is Enforcement.MPS
        name = held.cdi_name.partition("=")[2]
        assert world.specs.environments[name] == plan_fraction_access(world.live.now, binding).environment
        assert [mount.container_path for mount in world.specs.files[name][name][1]] == [
            "/tmp/nvidia-mps", "/dev/shm", "/run/nodeagent/vgpu/limits", "/run/nodeagent/vgpu/usage",
        ]  # fmt: skip
        said = await world.set_limits(pod="train", cores=20)
        assert said.endswith("from its next start on, as MPS takes it then")
        await world.start(held)
        assert world.specs.environments[name]["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "20"


async def test_a_gpu_whose_daemon_is_down_is_given_to_nobody(world: World) -> None:
    """Its ids are unhealthy until it is ready again; one that starts in order is no reason."""
    async with world.running():
        for phase, reason, healthy in (
            (MpsPhase.BROKEN, "it ended", 100),
            (MpsPhase.READY, "", 200),
            (MpsPhase.STARTING, "", 200),
        ):
            tell_daemon(world, phase, reason)
            await anyio.sleep(0.1)
            assert await world.count_healthy() == healthy


async def test_limits_of_a_running_container_are_changed(world: World) -> None:
    """Within what its GPU has left, durably, and in the file that it reads; who asked is told."""
    async with world.running():
        held = await world.admit("train", 30, 32)
        before = await world.start(held)
        said = await world.set_limits(pod="train", cores=50, memory_bytes=GIB)
        assert said == f"ns/train (main) has 50 cores and 1 GiB of {gpu_uuid(0)}"
        assert world.table.bindings[before.number].parts == (part(0, 50, 1),)
        (limits,) = world.folders.limits.values()
        assert (limits[0].cores, limits[0].memory_bytes) == (None, GIB)
        world.live.replace(make_settings(limit_compute=True))
        await world.set_limits(pod="train", cores=40)
        (limits,) = world.folders.limits.values()
        assert (limits[0].cores, limits[0].memory_bytes) == (40, GIB)
        await world.set_limits(pod="train", cores=50)
        assert world.facts(FractionBound)[-1].reason == "set by me"
        assert (await world.start(held)).parts == (part(0, 50, 1),)


async def test_limits_that_the_container_was_not_told_are_not_given_away(world: World) -> None:
    """Where its file cannot be written it goes on with what it had, and that stays its own."""
    async with world.running():
        binding = await world.start(await world.admit("train", 30, 32))
        world.folders.broken = "input/output error"
        with pytest.raises(ControlRefused, match="input/output error"):
            await world.set_limits(pod="train", cores=10, memory_bytes=GIB)
        assert world.table.bindings == {binding.number: binding}
        assert world.durable_bindings() == [binding]
        assert len(world.facts(FractionBound)) == 1
        with pytest.raises(ControlRefused, match="32 GiB"):
            await world.set_limits(pod="ns/train", memory_bytes=33 * GIB)
        world.folders.broken = "read-only file system"
        with pytest.raises(ControlRefused, match="read-only file system"):
            await world.set_limits(pod="train", container="main", cores=10)


async def test_limits_that_are_in_the_journal_alone_reach_the_container(world: World) -> None:
    """An agent that is killed between the two leaves the file as it was; settings do not reach who runs already."""
    async with world.running():
        held = await world.admit("train", 30, 32)
        binding = await world.start(held)
        ((name, before),) = world.folders.limits.items()
        await world.set_limits(pod="train", memory_bytes=GIB)
        after = world.folders.limits[name]
    world.folders.limits[name] = before
    async with world.running():
        assert world.table.bindings[binding.number].parts == (part(0, 30, 1),)
        assert world.folders.limits == {name: after}
        world.live.replace(make_settings(limit_compute=True, context_mib=300))
        await anyio.sleep(RENEW_SECONDS + 1)
        assert world.folders.limits == {name: after}
        world.folders.limits[name] = before
        world.folders.broken = "read-only file system"
        await anyio.sleep(RENEW_SECONDS + 1)
        world.folders.broken = ""
        await anyio.sleep(RENEW_SECONDS + 1)
        assert world.folders.limits[name][0].memory_bytes == GIB


async def test_limits_of_which_half_is_written_are_made_whole(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """By such a file the library holds no new process of the container; one that is not there is the start's."""

    async def read(name: str) -> tuple[FractionLimit, ...]:
        if world.folders.limits.get(name) == ():
            raise NodeagentError("it is half written")
        return world.folders.limits.get(name, ())

    monkeypatch.setattr(world.folders, "read", read)
    async with world.running():
        await world.start(await world.admit("train", 30, 32))
        ((name, whole),) = world.folders.limits.items()
        world.folders.limits[name] = ()
        await anyio.sleep(RENEW_SECONDS + 1)
        assert world.folders.limits == {name: whole}
        del world.folders.limits[name]
        await anyio.sleep(RENEW_SECONDS + 1)
        assert world.folders.limits == {}


async def test_limits_that_somebody_is_about_to_write_are_left_to_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was outdated when it was looked at need not be when it is this task's turn."""
    looks: list[str] = []

    async def read(name: str) -> tuple[FractionLimit, ...]:
        looks.append(name)
        if len(looks) == 1:
            raise NodeagentError("it is half written")
        return world.folders.limits[name]

    async def write(name: str, limits: Sequence[FractionLimit]) -> LimitsFolder:
        pytest.fail(f"{name} is written with {limits}")

    async with world.running():
        await world.start(await world.admit("train", 30, 32))
        monkeypatch.setattr(world.folders, "read", read)
        monkeypatch.setattr(world.folders, "write", write)
        await anyio.sleep(RENEW_SECONDS + 1)
        assert len(looks) >= 2


async def test_containers_are_told_how_busy_their_gpus_are(world: World) -> None:
    """Each measurement once, where compute is limited; what cannot be written is tried again with the next."""
    world.live.replace(make_settings(enforcement="library"))
    async with world.running():
        held = await world.admit("train", 30, 32)
        binding = await world.start(held)
        name = held.cdi_name.partition("=")[2]

        async def say(seconds: float) -> None:
            process = ProcessSample(pid=1, sm_utilization_percent=12)
            sample = NodeSample(time_seconds=seconds, gpus=(GpuSample(uuid=gpu_uuid(0), processes=(process,)),))
            part = FractionUse(gpu=gpu_uuid(0), index=0, cores=30, memory_bytes=GIB, cores_used=12)
            use = ContainerUse(
                number=binding.number, pod=binding.pod, container="main", enforcement=binding.enforcement,
                since_seconds=0, parts=(part,),
            )  # fmt: skip
            world.tell(sample, FractionUsage(time_seconds=seconds, containers=(use,)))
            await anyio.sleep(1)

        await say(1)
        assert world.folders.measures == []
        world.live.replace(make_settings(enforcement="library", limit_compute=True))
        world.folders.broken = "read-only file system"
        await say(2)
        world.folders.broken = ""
        await say(3)
        await say(3)
        assert world.folders.measures == [
            {name: (MeasuredUtilization(number=number, own=12, total=12),)} for number in (2000, 3000)
        ]
        world.tell(NodeSample(time_seconds=4, gpus=()))
        await say_use(world, 4)
        assert len(world.folders.measures) == 2, "nothing is known of its GPU"


async def say_use(world: World, seconds: float) -> None:
    """What is used by a measurement of which nobody knows the GPUs."""
    world.tell(FractionUsage(time_seconds=seconds))
    await anyio.sleep(1)


async def test_what_each_context_takes_is_in_the_limits(world: World) -> None:
    """The library charges it; it cannot see it."""
    world.live.replace(make_settings(context_mib=300))
    async with world.running():
        await world.start(await world.admit("train", 30, 32))
        (limits,) = world.folders.limits.values()
        assert limits[0].context_bytes == 300 << 20


async def test_whose_limits_are_meant_must_be_clear(world: World) -> None:
    """None, or several of one name; and nobody changes them while nobody gives parts."""
    async with world.running():
        first = await world.admit("train", 30, 32)
        second = await world.admit("train", 30, 32, container="side")
        for each in (first, second):
            await world.start(each)
        for pod, why in (
            ("other", "other has no part of a GPU here"),
            ("train", r"means ns/train \(main\), ns/train \(side\)"),
        ):
            with pytest.raises(ControlRefused, match=why):
                await world.set_limits(pod=pod, cores=1)
        await world.set_limits(pod="train", container="side", cores=1)
    with pytest.raises(ControlRefused):
        await world.set_limits(pod="train", container="side", cores=2)
