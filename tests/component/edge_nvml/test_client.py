"""The port to real GPUs, through a worker process: what it reads, what it costs, and how it starts."""

import shutil
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest

from nodeagent.core.children.child_process import ChildProcess
from nodeagent.edge.nvml.errors import REASONS, UNLOADABLE
from nodeagent.model.errors import DriverMismatch, DriverReleased, DriverUnavailable
from nodeagent.model.gpu import FabricPhase, PathKind
from tests.component.edge_nvml.conftest import MakeFake
from tests.component.edge_nvml.harness import is_alive, read_process, read_rss_kib, running_gpus, worker_pid
from tests.fakes.nvml.build import SONAME
from tests.fakes.nvml.control import FakeNvml
from tests.support.waiting import wait_until
from tests.unit.edge.host.tree import encode_new_cache

NEWER_FUNCTIONS = (
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetMarginTemperature",
    "nvmlDeviceGetNumaNodeId",
    "nvmlDeviceGetOfaUtilization",
    "nvmlDeviceGetJpgUtilization",
    "nvmlDeviceGetGpuInstanceProfileInfoV",
    "nvmlGpmQueryDeviceSupport",
)


async def test_the_answer_says_what_runs(fake: FakeNvml) -> None:
    """Versions, number of GPUs and the file that was loaded."""
    async with running_gpus(fake) as gpus:
        answer = await gpus.read_answer()
    assert (answer.code, answer.gpu_count, answer.cuda_version) == (0, 8, (12, 8))
    assert answer.driver_version == fake.profile.driver.version
    assert answer.library_path == str(fake.library_path)


async def test_an_inventory_holds_gpus_pairs_and_switches(fake: FakeNvml) -> None:
    """A whole DGX comes out, each pair with its path and its links."""
    async with running_gpus(fake) as gpus:
        readout = await gpus.read_inventory()
    assert [gpu.index for gpu in readout.gpus] == list(range(8))
    assert (len(readout.pairs), len(readout.switches), readout.missing) == (28, 4, ())
    assert {pair.nvlink_count for pair in readout.pairs} == {18}
    assert {pair.path for pair in readout.pairs} == {PathKind.NODE, PathKind.SYSTEM}
    assert all(gpu.unreadable == () and gpu.lost == "" for gpu in readout.gpus)


async def test_a_sample_enumerates_by_itself(fake: FakeNvml) -> None:
    """Asked for a sample first, the port finds out which GPUs there are."""
    async with running_gpus(fake) as gpus:
        sample = await gpus.read_sample()
    assert [one.gpu_temperature_celsius for one in sample.gpus] == [29] * 8
    assert sample.time_seconds > 1e9


@pytest.mark.parametrize("profile", ["dgx-h100", "a100-80gb-mig", "t4"])
async def test_a_sample_costs_at_most_sixty_calls_a_gpu(make_fake: MakeFake, profile: str) -> None:
    """Counted in the library, also on a GPU in seven parts with processes on each."""
    fake = make_fake(profile)
    for number, slot in enumerate(fake.gpu(0).mig_devices):
        ids = {"gpu_instance": slot.gpu_instance, "compute_instance": 0} if slot.present else {}
        fake.add_process(0, 100 + number, 1 << 20, timestamp_microseconds=9, **ids)
    async with running_gpus(fake) as gpus:
        await gpus.read_sample()
        before = fake.calls(gpu=0)
        await gpus.read_sample()
        assert 10 < fake.calls(gpu=0) - before <= 60


@pytest.mark.parametrize("profile", ["dgx-h100", "a100-80gb-mig"])
async def test_the_worker_stays_small(make_fake: MakeFake, profile: str) -> None:
    """At most 14 MB resident after enumeration and samples, what belongs to the fake left out."""
    fake = make_fake(profile)
    async with running_gpus(fake) as gpus:
        await gpus.read_inventory()  # the first start may have had to compile the worker's modules
        await gpus.release("measuring")
        await gpus.resume()
        await gpus.read_inventory()
        for _ in range(10):
            await gpus.read_sample()
        whole, fakes = read_rss_kib(worker_pid(gpus))
    assert whole - fakes <= 14_000_000 // 1024


async def test_the_worker_imports_only_what_it_needs(fake: FakeNvml) -> None:
    """No msgspec, anyio or pathlib: its memory and its start-up time are the agent's promise."""
    async with running_gpus(fake) as gpus:
        await gpus.read_inventory()
        mapped, command = read_process(worker_pid(gpus))
    assert "msgspec" not in mapped
    assert command[0] == sys.executable
    assert command[1:4] == ["-I", "-S", "-E"]


@pytest.mark.long
async def test_an_old_driver_gives_what_it_has(make_fake: MakeFake) -> None:
    """Where newer calls are missing older ones are asked, and nothing is called a fault."""
    fake = make_fake(hidden=NEWER_FUNCTIONS)
    async with running_gpus(fake) as gpus:
        readout = await gpus.read_inventory()
        sample = await gpus.read_sample()
    gpu, one = readout.gpus[0], sample.gpus[0]
    assert gpu.unreadable == one.unreadable == ()
    assert gpu.fabric is not None
    assert (gpu.fabric.phase, gpu.numa_node) == (FabricPhase.COMPLETED, None)
    assert gpu.mig is not None
    assert "1g.10gb+me" in [profile.name for profile in gpu.mig.profiles]
    assert one.memory_reserved_bytes is None
    assert one.memory_total_bytes == gpu.memory_total_bytes
    assert one.clock_event_reasons == 1
    assert (one.profiling, one.slowdown_margin_celsius, one.ofa_utilization_percent) == (None, None, None)


async def test_a_missing_function_is_not_asked_again(make_fake: MakeFake) -> None:
    """Not supported now is not supported in a second: the call is left out until the next enumeration."""
    fake = make_fake("t4")
    async with running_gpus(fake) as gpus:
        await gpus.read_sample()
        before = fake.calls("nvmlDeviceGetFanSpeed")
        await gpus.read_sample()
        assert fake.calls("nvmlDeviceGetFanSpeed") == before
        await gpus.read_inventory()
        await gpus.read_sample()
        assert fake.calls("nvmlDeviceGetFanSpeed") == before + 1


async def test_mig_follows_the_layout(fake: FakeNvml) -> None:
    """A new layout shows at the next enumeration, with memory and processes of each device in the samples after it."""
    async with running_gpus(fake) as gpus:
        assert (await gpus.read_inventory()).gpus[1].mig_devices == ()
        fake.cut(1, ["3g.40gb", "1g.10gb"])
        slot = fake.gpu(1).mig_devices[1]
        fake.add_process(1, 55, 1 << 30, gpu_instance=slot.gpu_instance, compute_instance=0)
        devices = (await gpus.read_inventory()).gpus[1].mig_devices
        sample = (await gpus.read_sample()).gpus[1]
        assert [device.profile for device in devices] == ["3g.40gb", "1g.10gb"]
        assert [share.uuid for share in sample.mig] == [device.uuid for device in devices]
        assert [[process.pid for process in share.processes] for share in sample.mig] == [[], [55]]
        fake.switch_mig_off(1)
        await gpus.read_inventory()
        assert (await gpus.read_sample()).gpus[1].mig == ()


async def test_one_enumeration_serves_probe_and_inventory(fake: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the driver was judged by is the first inventory; the next one is read anew, as is one that came late."""
    monkeypatch.setattr("nodeagent.edge.nvml.agent.client.FIRST_SERVES_SECONDS", 60.0)
    async with running_gpus(fake) as gpus:
        assert await gpus.read_fabric_pending() == ()
        before = fake.calls(gpu=0)
        first = await gpus.read_inventory()
        assert fake.calls(gpu=0) == before
        assert await gpus.read_inventory() == first
        assert fake.calls(gpu=0) > before
    monkeypatch.setattr("nodeagent.edge.nvml.agent.client.FIRST_SERVES_SECONDS", -1.0)
    async with running_gpus(fake) as gpus:
        await gpus.read_fabric_pending()
        before = fake.calls(gpu=0)
        await gpus.read_inventory()
        assert fake.calls(gpu=0) > before


async def test_another_opening_makes_the_first_enumeration_void(fake: FakeNvml) -> None:
    """A worker that was replaced meanwhile may see another driver."""
    async with running_gpus(fake) as gpus:
        await gpus.read_fabric_pending()
        await gpus.release("test")
        await gpus.resume()
        await gpus.read_answer()
        before = fake.calls(gpu=0)
        await gpus.read_inventory()
        assert fake.calls(gpu=0) > before


async def test_fabric_pending_names_the_gpus(fake: FakeNvml) -> None:
    """GPUs whose registration runs or failed are named, by UUID."""
    async with running_gpus(fake) as gpus:
        assert await gpus.read_fabric_pending() == ()
        fake.gpu(2).fabric_state = 2
        fake.gpu(5).fabric_status = 999
        wanted = (fake.gpu(2).uuid.decode(), fake.gpu(5).uuid.decode())
        assert await gpus.read_fabric_pending() == wanted


@pytest.mark.long
@pytest.mark.parametrize("code", [1, 4, 9, 12, 17, 20, 28, 999])
async def test_a_driver_that_does_not_start_is_an_answer(fake: FakeNvml, code: int) -> None:
    """The failure is told in words to whoever judges, and is an error for whoever wants GPUs; later it just works."""
    async with running_gpus(fake) as gpus:
        with fake.failing("nvmlInitWithFlags", code):
            answer = await gpus.read_answer()
            with pytest.raises(DriverUnavailable, match=f"NVML code {code}"):
                await gpus.read_inventory()
        assert answer.code == code
        assert answer.message == f"nvmlInitWithFlags: {REASONS[code]}"
        assert len((await gpus.read_inventory()).gpus) == 8


async def test_a_mismatch_is_an_error_of_its_own(fake: FakeNvml, tmp_path: Path) -> None:
    """Library and module of different versions: the error names the version of the library."""
    library = tmp_path / "libnvidia-ml.so.550.54.15"
    shutil.copy(fake.library_path, library)
    fake.fail("nvmlInitWithFlags", 18)
    async with running_gpus(fake, library=str(library)) as gpus:
        with pytest.raises(DriverMismatch, match=r"550\.54\.15"):
            await gpus.read_sample()


@pytest.mark.parametrize("kind", ["absent", "empty", "text", "foreign architecture", "not NVML"])
async def test_a_library_that_is_none_is_an_answer(fake: FakeNvml, tmp_path: Path, kind: str) -> None:
    """Whatever lies in the library's place, the answer says that it cannot be loaded and which file it is."""
    library = tmp_path / SONAME
    if kind == "empty":
        library.touch()
    elif kind == "text":
        library.write_text("INPUT(somewhere)")
    elif kind == "foreign architecture":
        whole = bytearray(fake.library_path.read_bytes())
        whole[18] = 0xF3  # e_machine: RISC-V
        library.write_bytes(whole)
    elif kind == "not NVML":
        from _ctypes import __file__ as other  # noqa: PLC0415 -- any shared object will do, and one is always there

        shutil.copy(other, library)
    async with running_gpus(fake, library=str(library)) as gpus:
        answer = await gpus.read_answer()
        with pytest.raises(DriverUnavailable, match=SONAME):
            await gpus.read_inventory()
    assert answer.code == UNLOADABLE
    assert str(library) in answer.message


@pytest.mark.parametrize("place", ["usr/lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/nvidia/current", "opt/nv"])
async def test_the_library_is_found_below_the_driver_root(fake: FakeNvml, tmp_path: Path, place: str) -> None:
    """Links in a driver root mean "from that root", as in a container's file system; so do paths in its own cache."""
    directory = tmp_path / place
    directory.mkdir(parents=True)
    shutil.copy(fake.library_path, directory / "libnvidia-ml.so.570.172.08")
    (directory / SONAME).symlink_to(f"/{place}/libnvidia-ml.so.570.172.08")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/ld.so.cache").write_bytes(encode_new_cache([(0x0303, SONAME, f"/{place}/{SONAME}", 0)]))
    async with running_gpus(fake, library="", driver_root=str(tmp_path)) as gpus:
        answer = await gpus.read_answer()
    assert answer.library_path == str(directory / "libnvidia-ml.so.570.172.08")


async def test_a_driver_that_comes_later_is_found(fake: FakeNvml, tmp_path: Path) -> None:
    """First there is no library, then there is; nothing has to be restarted."""
    library = tmp_path / SONAME
    async with running_gpus(fake, library=str(library)) as gpus:
        assert (await gpus.read_answer()).code == UNLOADABLE
        shutil.copy(fake.library_path, library)
        assert (await gpus.read_answer()).code == 0


async def test_a_library_replaced_while_the_driver_is_down_is_loaded_anew(fake: FakeNvml, tmp_path: Path) -> None:
    """Only a new process can load the new file: the worker makes way for one."""
    library = tmp_path / SONAME
    shutil.copy(fake.library_path, library)
    fake.fail("nvmlInitWithFlags", 18)
    async with running_gpus(fake, library=str(library)) as gpus:
        assert (await gpus.read_answer()).code == 18
        before = worker_pid(gpus)
        library.unlink()
        shutil.copy(fake.library_path, library)
        fake.fail("nvmlInitWithFlags", 0)
        assert (await gpus.read_answer()).code == 0
        assert worker_pid(gpus) != before


async def test_release_ends_every_handle_and_resume_takes_the_new_driver(make_fake: MakeFake) -> None:
    """Released, no process of ours has the library; resumed, a new worker finds the driver as it is then."""
    fake = make_fake("t4")
    async with running_gpus(fake) as gpus:
        await gpus.read_inventory()
        pid = worker_pid(gpus)
        await gpus.release("driver upgrade")
        assert not is_alive(pid)
        with pytest.raises(DriverReleased, match="driver upgrade"):
            await gpus.read_answer()
        with pytest.raises(DriverReleased, match="driver upgrade"):
            await gpus.read_sample()
        assert gpus.statistics() is None
        fake.state.driver_version = b"580.65.06"
        await gpus.resume()
        assert (await gpus.read_answer()).driver_version == "580.65.06"
        assert len((await gpus.read_sample()).gpus) == 1


async def test_release_and_resume_may_be_said_twice(make_fake: MakeFake) -> None:
    """A second release keeps the newer reason; resuming what runs changes nothing."""
    fake = make_fake("t4")
    async with running_gpus(fake) as gpus:
        await gpus.resume()
        await gpus.release("one")
        await gpus.release("two")
        with pytest.raises(DriverReleased, match="two"):
            await gpus.read_inventory()
        await gpus.resume()
        assert (await gpus.read_answer()).code == 0


async def test_all_gpus_are_asked_in_one_question(fake: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a sample costs must not grow with a trip to the worker and back for each GPU."""
    asked: list[bytes] = []
    async with running_gpus(fake) as gpus:
        await gpus.read_inventory()
        request = ChildProcess.request

        async def note(self: ChildProcess, payload: bytes, **options: Any) -> bytes:
            asked.append(payload)
            return await request(self, payload, **options)

        monkeypatch.setattr(ChildProcess, "request", note)
        assert len((await gpus.read_sample()).gpus) == 8
    assert len(asked) == 1


async def test_levels_are_read_when_they_are_due(fake: FakeNvml) -> None:
    """In between they are as they were, what moves fast is new; anything the driver reports makes them due at once."""
    async with running_gpus(fake, levels_seconds=lambda: 3600.0) as gpus:
        first = await gpus.read_sample()
        gpu = fake.gpu(0)
        gpu.ecc_corrected_volatile, gpu.temperature = 7, 50
        second = await gpus.read_sample()
        assert (second.gpus[0].ecc_corrected_volatile, second.gpus[0].gpu_temperature_celsius) == (0, 50)
        assert second.call_count < first.call_count
        async with aclosing(gpus.events()) as events:
            listening = anyio.Event()

            async def listen() -> None:
                listening.set()
                await anext(events)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(listen)
                await listening.wait()
                await wait_until(lambda: fake.calls("nvmlDeviceRegisterEvents", gpu=7) > 0)
                fake.push_event(0, 8, 31)
        assert (await gpus.read_sample()).gpus[0].ecc_corrected_volatile == 7


async def test_what_asking_costs_is_told(fake: FakeNvml) -> None:
    """Calls and time by function, failures by code, and the workers, over all of them since the start."""
    async with running_gpus(fake) as gpus:
        fake.fail("nvmlDeviceGetPowerUsage", 999, gpu=0)
        before = (await gpus.read_sample()).access
        assert before is not None
        calls = {one.function: one for one in before.calls}
        assert calls["nvmlDeviceGetTemperature"].count == 8
        assert calls["nvmlDeviceGetTemperature"].seconds > 0
        assert ("nvmlDeviceGetPowerUsage", 999, 1) in [(one.function, one.code, one.count) for one in before.failures]
        assert (before.worker_starts, before.worker_stuck, before.worker_died, before.left_behind) == (1, 0, 0, ())
        await gpus.release("a test")
        await gpus.resume()
        after = (await gpus.read_sample()).access
        assert after is not None
        assert (after.worker_starts, {one.function: one.count for one in after.calls}["nvmlDeviceGetTemperature"]) == (
            2,
            16,
        )


async def test_newer_levels_come_from_the_driver(make_fake: MakeFake, tmp_path: Path) -> None:
    """NVLink 5 counters and error rates, the board's own flags, PCIe errors of the GPU and of the kernel."""
    fake = make_fake("dgx-b200")
    gpu = fake.gpu(0)
    gpu.sram_threshold_exceeded = gpu.memory_unrepairable = gpu.inforom_corrupt = 1
    gpu.pcie_fatal_count, gpu.fabric_health_summary = 3, 3
    gpu.links[1].fifth[8] = 2
    gpu.links[2].effective_ber = 5 << 8 | 11
    gpu.links[3].speed_mbps = 25000
    directory = tmp_path / "bus" / "pci" / "devices" / fake.profile.seats[0].address
    directory.mkdir(parents=True)
    (directory / "aer_dev_nonfatal").write_text("Undefined 0\nTLP 4\nTOTAL_ERR_NONFATAL 4\n")
    async with running_gpus(fake, sysfs=str(tmp_path)) as gpus:
        (first, *_) = (await gpus.read_inventory()).gpus
        (one, other, *_) = (await gpus.read_sample()).gpus
    assert first.inforom_valid is False
    assert (one.sram_threshold_exceeded, one.memory_unrepairable, one.fabric_health_summary) == (True, True, 3)
    assert (one.pcie_fatal_error_count, one.aer_non_fatal_count, one.aer_fatal_count) == (3, 4, None)
    assert (one.nvlink_recovery_failed_count, one.nvlink_replay_count) == (2, None)
    assert (one.nvlink_speed_min_mbps, one.nvlink_effective_ber, one.nvlink_symbol_ber) == (25000, 5e-11, 0.0)
    assert (other.nvlink_effective_ber, other.aer_non_fatal_count, other.sram_threshold_exceeded) == (0.0, None, False)
