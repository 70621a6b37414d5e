"""GPUs are cut through a worker of its own: by exactly the calls that are needed, and never against those inside."""

import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.edge.nvml.agent.partitioning import NvmlPartitioning, PartitioningSettings
from nodeagent.model.errors import DriverStuck, DriverUnavailable, GpuLost, NodeagentError, PartitionRefused
from nodeagent.model.gpu import Gpu
from nodeagent.model.mig import Write, WriteKind
from nodeagent.model.ports import PartitionSession
from nodeagent.rules.mig.partitions import is_met
from nodeagent.rules.mig.steps import Goal, plan_writes
from nodeagent.rules.mig.wanted import Wanted
from tests.component.edge_nvml.conftest import MakeFake
from tests.component.edge_nvml.harness import is_alive, running_gpus, worker_pid
from tests.fakes.nvml.control import FakeNvml
from tests.support.gpus import make_gpu
from tests.support.mig import request
from tests.support.waiting import wait_until

WRITING = (
    "nvmlDeviceSetMigMode",
    "nvmlDeviceCreateGpuInstance",
    "nvmlDeviceCreateGpuInstanceWithPlacement",
    "nvmlGpuInstanceDestroy",
    "nvmlGpuInstanceCreateComputeInstance",
    "nvmlComputeInstanceDestroy",
)


def find_gpu(fake: FakeNvml, index: int) -> Gpu:
    state, gpu = fake.gpu(index), make_gpu(index)
    address = f"{state.pci_domain:04x}:{state.pci_bus:02x}:{state.pci_device:02x}.0"
    return replace(gpu, uuid=state.uuid.decode(), pci=replace(gpu.pci, address=address))


def settings_for(fake: FakeNvml, tmp_path: Path, call_timeout_seconds: float = 60.0) -> PartitioningSettings:
    """With a tool that resets what the fake plays: it is another process, which holds nothing of the worker's.

    Like NVIDIA's it tells what it refuses on its standard output (tests/contract/nvidia_smi).
    """
    tool = tmp_path / "reset.py"
    tool.write_text(
        "import pathlib, sys\n"
        f"here = pathlib.Path({str(tmp_path)!r})\n"
        "with (here / 'resets').open('a') as file:\n"
        "    file.write(sys.argv[1] + '\\n')\n"
        "refuses = here / 'refuses'\n"
        "print(refuses.read_text() if refuses.exists() else '')\n"
        "sys.exit(255 if refuses.exists() else 0)\n"
    )
    return PartitioningSettings(
        library=str(fake.library_path),
        environment=fake.environment,
        reset_command=(sys.executable, "-S", "-I", str(tool)),
        call_timeout_seconds=call_timeout_seconds,
    )


@asynccontextmanager
async def cutting(
    fake: FakeNvml, tmp_path: Path, call_timeout_seconds: float = 60.0
) -> AsyncIterator[PartitionSession]:
    settings = settings_for(fake, tmp_path, call_timeout_seconds)
    async with running(NvmlPartitioning(settings, nullcontext)) as session:
        yield session


@asynccontextmanager
async def running(partitioning: NvmlPartitioning) -> AsyncIterator[PartitionSession]:
    async with anyio.create_task_group() as tasks:
        await tasks.start(partitioning.run)
        async with partitioning.begin() as session:
            yield session
        tasks.cancel_scope.cancel()


async def reach(session: PartitionSession, gpu: Gpu, wanted: Wanted) -> int:
    """Make the calls that a plan says, read anew where it ends; how many it took."""
    made = 0
    while writes := plan_writes(Goal(wanted=wanted), await session.read(gpu)):
        for write in writes:
            await session.write(gpu, write)
            made += 1
    return made


def count_writes(fake: FakeNvml) -> int:
    return sum(fake.calls(function) for function in WRITING)


@pytest.mark.parametrize(
    ("profile", "layout"),
    [
        ("dgx-h100", "3g.40gb 2g.20gb 1g.10gb 1g.10gb+me"),
        ("dgx-h200", "1g.18gb " * 7),
        ("dgx-h100", "7g.80gb"),
        ("rtx-pro-6000", "4g.96gb+gfx"),
        ("dgx-b200", "4g.90gb 1c.3g.90gb 2c.3g.90gb"),
        ("rtx-pro-6000", "2g.48gb+gfx 1g.24gb-me 1g.24gb"),
    ],
)
async def test_a_layout_is_had_by_exactly_the_calls_that_are_needed(
    make_fake: MakeFake, tmp_path: Path, profile: str, layout: str
) -> None:
    """And taken back by as many; the other GPUs are not so much as asked."""
    fake = make_fake(profile)
    gpu = find_gpu(fake, 1)
    async with cutting(fake, tmp_path) as session:
        assert await reach(session, gpu, request(layout)) == count_writes(fake)
        partitions = await session.read(gpu)
        assert is_met(request(layout), partitions)
        instances, computes = len(partitions.instances), sum(len(one.computes) for one in partitions.instances)
        assert count_writes(fake) == 1 + instances + computes
        assert await reach(session, gpu, request(layout)) == 0
        await reach(session, gpu, Wanted(enabled=False))
    assert count_writes(fake) == 2 * (1 + instances + computes)
    assert sum(fake.calls(function, gpu=0) for function in WRITING) == 0


async def test_what_stays_is_not_touched(make_fake: MakeFake, tmp_path: Path) -> None:
    """An instance that both layouts have keeps its device, by name."""
    fake = make_fake("a100-80gb-mig")
    gpu = find_gpu(fake, 1)
    async with running_gpus(fake) as gpus, cutting(fake, tmp_path) as session:
        before = {device.uuid: device.profile for device in (await gpus.read_inventory()).gpus[1].mig_devices}
        await reach(session, gpu, request("3g.40gb 2g.20gb 2g.20gb"))
        after = {device.uuid: device.profile for device in (await gpus.read_inventory()).gpus[1].mig_devices}
    assert sorted(before[uuid] for uuid in before.keys() & after.keys()) == ["2g.20gb", "3g.40gb"]
    assert sorted(after.values()) == ["2g.20gb", "2g.20gb", "3g.40gb"]


async def test_an_instance_without_a_device_is_seen(make_fake: MakeFake, tmp_path: Path) -> None:
    """Whoever was killed between the two calls left it; the next one finds it, and finishes."""
    fake = make_fake("dgx-h100")
    gpu = find_gpu(fake, 0)
    async with cutting(fake, tmp_path) as session:
        await session.write(gpu, Write(kind=WriteKind.MODE_ON))
        made = await session.write(gpu, Write(kind=WriteKind.CREATE, profile_id=9, start=4, size=4))
    async with cutting(fake, tmp_path) as session:
        found = (await session.read(gpu)).instances
        assert [(one.id, one.profile_id, one.start, one.computes) for one in found] == [(made, 9, 4, ())]
        assert await reach(session, gpu, request("3g.40gb")) == 1


async def test_ampere_is_reset_alone(make_fake: MakeFake, tmp_path: Path) -> None:
    """By the driver's own tool, with its address and no other, and nobody of ours holding it."""
    fake = make_fake("dgx-a100")
    gpu = find_gpu(fake, 2)
    async with cutting(fake, tmp_path) as session:
        await session.write(gpu, Write(kind=WriteKind.MODE_ON))
        waits = await session.read(gpu)
        assert (waits.enabled, waits.pending) == (False, True)
        await session.write(gpu, Write(kind=WriteKind.RESET))
        fake.reset(2)
        assert (await session.read(gpu)).enabled
    assert (tmp_path / "resets").read_text() == f"{gpu.pci.address}\n"


IN_USE = (
    "GPU 00000000:3B:00.0 is currently in use by another process.",
    "Unable to reset GPU 0: In use by another client",
)
"""As NVIDIA's tool says it: a sentence of its own, and NVML's words for the code."""


@pytest.mark.parametrize("said", IN_USE)
async def test_a_gpu_that_is_in_use_is_told_as_such(make_fake: MakeFake, tmp_path: Path, said: str) -> None:
    """In whichever words the tool says it: that is waited for, and not a refusal for good."""
    fake = make_fake("dgx-a100")
    (tmp_path / "refuses").write_text(said)
    async with cutting(fake, tmp_path) as session:
        with pytest.raises(PartitionRefused, match=f"ended with 255: {said}") as refused:
            await session.write(find_gpu(fake, 2), Write(kind=WriteKind.RESET))
        assert refused.value.in_use


def test_the_tool_is_that_of_the_driver_root() -> None:
    """A driver in a container has it there."""
    assert PartitioningSettings().render_reset("a") == ["nvidia-smi", "--gpu-reset", "-i", "a"]
    within = PartitioningSettings(driver_root="/run/nvidia/driver/")
    assert within.render_reset("a") == ["chroot", "/run/nvidia/driver", "nvidia-smi", "--gpu-reset", "-i", "a"]


async def test_a_time_slice_is_set_by_the_tool_of_the_driver(fake: FakeNvml, tmp_path: Path) -> None:
    """NVML has no call for it; what the tool refuses is told in its own words."""
    within = PartitioningSettings(driver_root="/run/nvidia/driver").render_time_slice("a", 3)
    assert within == ["chroot", "/run/nvidia/driver", "nvidia-smi", "compute-policy", "-i", "a", "--set-timeslice", "3"]
    tool = tmp_path / "tool.py"
    told = tmp_path / "told"
    tool.write_text(f"import sys\nopen({str(told)!r}, 'a').write(' '.join(sys.argv[1:]))\n")
    settings = replace(settings_for(fake, tmp_path), tool=(sys.executable, "-S", "-I", str(tool)))
    gpu = find_gpu(fake, 2)
    async with running(NvmlPartitioning(settings, nullcontext)) as session:
        await session.set_time_slice(gpu, 3)
        assert told.read_text() == f"compute-policy -i {gpu.pci.address} --set-timeslice 3"
        tool.write_text("import sys\nsys.exit('Not supported')\n")
        with pytest.raises(
            PartitionRefused, match=r"^cannot set time slice 1 of GPU 2: .* ended with 1: Not supported$"
        ):
            await session.set_time_slice(gpu, 1)


async def test_a_tool_that_is_not_there_is_told(fake: FakeNvml, tmp_path: Path) -> None:
    settings = PartitioningSettings(
        library=str(fake.library_path), environment=fake.environment, reset_command=("/nowhere/nvidia-smi",)
    )
    async with running(NvmlPartitioning(settings, nullcontext)) as session:
        with pytest.raises(PartitionRefused, match=r"^cannot reset the GPU.*/nowhere/nvidia-smi: No such file"):
            await session.write(find_gpu(fake, 0), Write(kind=WriteKind.RESET))


async def test_the_mode_waits_for_those_who_use_the_gpu(fake: FakeNvml, tmp_path: Path) -> None:
    fake.add_process(0, 77, 1 << 30)
    async with cutting(fake, tmp_path) as session:
        with pytest.raises(PartitionRefused, match="the GPU is in use") as refused:
            await session.write(find_gpu(fake, 0), Write(kind=WriteKind.MODE_ON))
        assert refused.value.in_use


@pytest.mark.parametrize("function", WRITING[2:])
async def test_each_refusal_says_which_call_and_why(make_fake: MakeFake, tmp_path: Path, function: str) -> None:
    """And the driver is asked once, not again."""
    fake = make_fake("a100-80gb-mig")
    gpu = find_gpu(fake, 2)
    fake.fail(function, 23)
    async with cutting(fake, tmp_path) as session:
        with pytest.raises(PartitionRefused, match=rf"^cannot .*{function}.*: out of a critical resource"):
            await reach(session, gpu, request("1g.10gb"))
    assert fake.calls(function) == 1


async def test_a_missing_permission_says_what_is_needed(fake: FakeNvml, tmp_path: Path) -> None:
    """The unit and the chart have it only where partitions are managed."""
    fake.fail("nvmlDeviceSetMigMode", 4)
    async with cutting(fake, tmp_path) as session:
        with pytest.raises(PartitionRefused, match="the process needs CAP_SYS_ADMIN"):
            await session.write(find_gpu(fake, 0), Write(kind=WriteKind.MODE_ON))


@pytest.mark.long
async def test_an_old_driver_chooses_places_itself(make_fake: MakeFake, tmp_path: Path) -> None:
    """The widest first, so that all fit."""
    fake = make_fake("dgx-h100", hidden={"nvmlDeviceCreateGpuInstanceWithPlacement"})
    async with cutting(fake, tmp_path) as session:
        gpu = find_gpu(fake, 0)
        await reach(session, gpu, request("4g.40gb 3g.40gb"))
        assert is_met(request("4g.40gb 3g.40gb"), await session.read(gpu))


@pytest.mark.parametrize(
    ("break_it", "error"),
    [
        (lambda fake: fake.hang("nvmlDeviceSetMigMode"), DriverStuck),
        (lambda fake: fake.crash("nvmlDeviceSetMigMode"), DriverUnavailable),
        (lambda fake: fake.fail("nvmlInitWithFlags", 9), DriverUnavailable),
        (lambda fake: fake.lose(0), GpuLost),
    ],
)
async def test_a_call_that_does_not_come_back_is_made_once(
    fake: FakeNvml, tmp_path: Path, break_it: object, error: type[NodeagentError]
) -> None:
    """Whether it happened is for whoever asked to read."""
    assert callable(break_it)
    break_it(fake)
    # Short only where there is nothing but the deadline to wait for: a busy machine takes its time to start a worker.
    async with cutting(fake, tmp_path, call_timeout_seconds=0.5 if error is DriverStuck else 60.0) as session:
        with pytest.raises(error):
            await session.write(find_gpu(fake, 0), Write(kind=WriteKind.MODE_ON))
        fake.clear()
    assert fake.calls("nvmlDeviceSetMigMode") <= 1


async def test_a_gpu_that_cannot_be_read_is_told(fake: FakeNvml, tmp_path: Path) -> None:
    """Lost, or with a driver that does not answer the question."""
    gpu = find_gpu(fake, 0)
    async with cutting(fake, tmp_path) as session:
        with fake.failing("nvmlDeviceGetMigMode", 999), pytest.raises(DriverUnavailable, match="unknown error"):
            await session.read(gpu)
        fake.lose(0)
        with pytest.raises(GpuLost):
            await session.read(gpu)


async def test_nobody_reads_while_the_mode_is_switched(fake: FakeNvml, tmp_path: Path) -> None:
    """The process that reads holds no handle then; whoever asks meanwhile waits, and is answered by a new one."""
    async with running_gpus(fake) as gpus:
        await gpus.read_inventory()
        pid = worker_pid(gpus)
        fake.delay("nvmlDeviceSetMigMode", 0.3)
        settings = settings_for(fake, tmp_path)
        async with running(NvmlPartitioning(settings, gpus.set_aside)) as session, anyio.create_task_group() as tasks:
            gpu = find_gpu(fake, 0)
            tasks.start_soon(session.write, gpu, Write(kind=WriteKind.MODE_ON))
            await wait_until(lambda: fake.calls("nvmlDeviceSetMigMode") > 0)
            assert not is_alive(pid)
            sample = await gpus.read_sample()
            assert [one.lost for one in sample.gpus] == [""] * 8
        assert worker_pid(gpus) != pid


@pytest.mark.long
async def test_eight_gpus_are_cut_in_little_more_than_the_drivers_own_time(fake: FakeNvml, tmp_path: Path) -> None:
    """Mode on and seven instances each; every call of the driver's takes ten milliseconds here."""
    spent = 0.010
    for function in WRITING:
        fake.delay(function, spent)
    began = time.monotonic()
    async with cutting(fake, tmp_path) as session:
        for index in range(8):
            await reach(session, find_gpu(fake, index), request("1g.10gb " * 7))
    took = time.monotonic() - began
    assert count_writes(fake) == 8 * 15
    # Measured while others shared the machine it was 1.2 to 1.5 times.
    assert took < 3 * 8 * 15 * spent
