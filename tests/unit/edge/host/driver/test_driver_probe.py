"""The probe of the real driver, on a host made of files."""

import os
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.driver import driver_probe
from nodeagent.edge.host.driver.driver_probe import HostDriverProbe, ProbeSettings
from nodeagent.edge.nvml.agent.protocol import read_code
from nodeagent.model.driver import DriverEvidence, LibraryAnswer, LibraryOutcome
from nodeagent.model.errors import DriverError, DriverMismatch, DriverReleased, DriverStuck, DriverUnavailable
from tests.unit.edge.host.devices.test_device_node_files import needs_mknod
from tests.unit.edge.host.tree import HostTree

WORKING = LibraryAnswer(driver_version="580.65.06", gpu_count=8)


@asynccontextmanager
async def probe_of(host: HostTree, **changes: Any) -> AsyncIterator[HostDriverProbe]:
    asked = {name: changes.pop(name) for name in ("ask_nvml", "ask_fabric", "check_cuda") if name in changes}
    settings = ProbeSettings(
        driver_root=host.root,
        host_root=host.root,
        proc_root=host.proc,
        sys_root=host.sys,
        **({"poll_seconds": 0.01} | changes),
    )
    worker = WorkerThread("probe")
    try:
        yield HostDriverProbe(settings, worker, **asked)
    finally:
        worker.close()


def answering(*answers: LibraryAnswer | DriverError) -> Callable[[], Any]:
    """An NVML that gives these answers in turn, the last one for ever."""
    left = list(answers)

    async def ask() -> LibraryAnswer:
        await anyio.lowlevel.checkpoint()
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, DriverError):
            raise answer
        return answer

    return ask


async def test_bare_host_gives_empty_evidence(host: HostTree) -> None:
    """No driver, no card, nobody to ask: evidence without content, not an error."""
    async with probe_of(host) as probe:
        assert await probe.read_evidence() == DriverEvidence()


async def test_whole_driver_is_seen(host: HostTree) -> None:
    """Module, card, library, switches and missing nodes all come into one look."""
    host.load_module()
    host.add_function("0000:1b:00.0", driver="nvidia")
    host.install_library(version="570.26")
    (host.proc / "driver/nvidia-nvswitch/devices/0").mkdir(parents=True)
    async with probe_of(host, ask_nvml=answering(WORKING)) as probe:
        evidence = await probe.read_evidence()
    assert [function.address for function in evidence.pci_functions] == ["0000:1b:00.0"]
    assert (evidence.module_loaded, evidence.module_version, evidence.open_module) == (True, "580.65.06", True)
    assert (evidence.library_version, evidence.nvswitch_count, evidence.library) == ("570.26", 1, WORKING)
    assert evidence.nodes_missing == ("/dev/nvidiactl", "/dev/nvidia-uvm")
    assert probe.roots.is_host_driver


async def test_the_module_is_looked_for_while_gpus_do_not_work(host: HostTree) -> None:
    """Only then: a kernel's table is long. Without GPUs there is nothing to load it for."""
    host.write("proc/sys/kernel/osrelease", "6.8.0\n")
    host.write("lib/modules/6.8.0/modules.dep", "updates/dkms/nvidia.ko: x\n")
    async with probe_of(host, ask_nvml=answering(read_code(9))) as probe:
        assert (await probe.read_evidence()).module_search is None
        host.add_function("0000:1b:00.0")
        search = (await probe.read_evidence()).module_search
        assert search is not None
        assert (search.kernel, search.file, search.headers) == ("6.8.0", "updates/dkms/nvidia.ko", False)
    async with probe_of(host, ask_nvml=answering(LibraryAnswer(), WORKING)) as probe:
        assert (await probe.read_evidence()).module_search is not None
        assert (await probe.read_evidence()).module_search is None


async def test_configured_library_gives_the_version(host: HostTree) -> None:
    """With `driver.nvml_library` that library counts, whatever lies elsewhere."""
    host.install_library()
    host.write("opt/libnvidia-ml.so.550.90.07", "ELF")
    link = host.link("opt/nvml.so", "libnvidia-ml.so.550.90.07")
    async with probe_of(host, nvml_library=link) as probe:
        assert (await probe.read_evidence()).library_version == "550.90.07"


@pytest.mark.parametrize("in_use", [True, False])
async def test_version_is_that_of_the_library_in_use(host: HostTree, in_use: bool) -> None:
    """A stale library elsewhere on the host does not make a working driver look mismatched."""
    host.install_library(version="535.1.1")
    real = host.write("opt/libnvidia-ml.so.580.65.06", "ELF")
    host.link("opt/libnvidia-ml.so.1", real.name)
    path = str(real) if in_use else "libnvidia-ml.so.1"
    answer = LibraryAnswer(gpu_count=8, library_path=path)
    async with probe_of(host, ask_nvml=answering(answer)) as probe:
        assert (await probe.read_evidence()).library_version == ("580.65.06" if in_use else "535.1.1")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (DriverReleased("by hand"), DriverEvidence(released="by hand")),
        (DriverStuck("nvmlInit", 5.0), DriverEvidence(stuck="nvmlInit did not come back within 5 s")),
        (
            DriverUnavailable("load the library", "no such file"),
            DriverEvidence(
                library=LibraryAnswer(
                    outcome=LibraryOutcome.UNLOADABLE, message="cannot load the library: no such file"
                )
            ),
        ),
    ],
)
async def test_driver_that_cannot_be_asked_is_evidence(
    host: HostTree, error: DriverError, expected: DriverEvidence
) -> None:
    """What the NVML side raises is said in the evidence, never raised on."""
    async with probe_of(host, ask_nvml=answering(error)) as probe:
        assert await probe.read_evidence() == expected


async def test_mismatch_is_evidence_with_its_outcome(host: HostTree) -> None:
    """A mismatch found by the NVML side looks like NVML's own."""
    async with probe_of(host, ask_nvml=answering(DriverMismatch("1", "2"))) as probe:
        nvml = (await probe.read_evidence()).library
    assert nvml is not None
    assert nvml.outcome is LibraryOutcome.VERSION_MISMATCH


async def test_fabric_is_asked_only_of_a_working_library(host: HostTree) -> None:
    """Pending registrations are evidence once NVML works; before, nobody is asked."""

    async def ask_fabric() -> tuple[str, ...]:
        await anyio.lowlevel.checkpoint()
        return ("GPU-a",)

    ask_nvml = answering(read_code(9), WORKING)
    async with probe_of(host, ask_nvml=ask_nvml, ask_fabric=ask_fabric) as probe:
        assert (await probe.read_evidence()).fabric_pending == ()
        assert (await probe.read_evidence()).fabric_pending == ("GPU-a",)


async def test_smoke_test_runs_once_for_each_driver(host: HostTree) -> None:
    """It is repeated until it passes, then only after the driver was away or has changed."""
    real = host.install_library(name="libcuda")
    seen: list[Path | None] = []
    results = ["error 999", "", "", ""]

    async def check_cuda(library: Path | None) -> str:
        await anyio.lowlevel.checkpoint()
        seen.append(library)
        return results[len(seen) - 1]

    newer = LibraryAnswer(driver_version="590.1", gpu_count=8)
    ask_nvml = answering(WORKING, WORKING, WORKING, newer, read_code(9), newer, newer)
    async with probe_of(host, ask_nvml=ask_nvml, check_cuda=check_cuda) as probe:
        failures = [(await probe.read_evidence()).cuda_failure for _ in range(7)]
    assert failures == ["error 999", "", "", "", "", "", ""]
    assert seen == [real] * 4


async def test_hanging_file_system_is_evidence(host: HostTree, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that does not come back is cut off and named; once it works again, so does the look."""
    gate = os.pipe()
    monkeypatch.setattr(driver_probe, "read_platform_problem", lambda roots: os.read(gate[0], 1).decode())
    try:
        async with probe_of(host, look_timeout_seconds=0.05) as probe:
            assert "reading /proc and /sys did not return" in (await probe.read_evidence()).stuck
            os.write(gate[1], b"xy")
            monkeypatch.undo()
            probe._settings = replace(probe._settings, look_timeout_seconds=30)
            assert (await probe.read_evidence()).stuck == ""
    finally:
        os.close(gate[0])
        os.close(gate[1])


Change = Callable[[HostTree], object]


def make_node(host: HostTree) -> None:
    os.mknod(host.root / "dev/nvidiactl", stat.S_IFCHR | 0o666, os.makedev(195, 255))


def reload_module(host: HostTree) -> None:
    (host.sys / "module/nvidia").rename(host.sys / "module/gone")
    host.load_module()


CHANGES: dict[str, Change] = {
    "module reloaded": reload_module,
    "module gone": HostTree.unload_module,
    "module replaced": lambda host: host.write("sys/module/nvidia/version", "590.1\n"),
    "another module": lambda host: host.write("sys/module/nvidia_uvm/refcnt", "0\n"),
    "nouveau": lambda host: host.write("sys/module/nouveau/refcnt", "0\n"),
    "card added": lambda host: host.add_function("0000:2b:00.0"),
    "library installed": HostTree.install_library,
    "library cache rewritten": lambda host: host.write("etc/ld.so.cache", "x"),
    "container driver": lambda host: host.install_library("run/nvidia/driver/"),
    "switch": lambda host: host.write("proc/driver/nvidia-nvswitch/devices/0"),
    "node": lambda host: host.write("dev/nvidiactl"),
}


@pytest.mark.long
@pytest.mark.parametrize("what", CHANGES)
async def test_change_on_the_host_is_noticed(host: HostTree, what: str) -> None:
    """Each kind of coming and going ends the wait, and nothing else does."""
    host.load_module()
    async with probe_of(host) as probe:
        await probe.read_evidence()
        with anyio.move_on_after(0.1) as quiet:
            await probe.wait_change()
        assert quiet.cancelled_caught
        CHANGES[what](host)
        with anyio.fail_after(10):
            await probe.wait_change()


@needs_mknod
async def test_changed_permission_of_a_node_is_noticed(host: HostTree) -> None:
    """A node made unusable is a change like its removal."""
    make_node(host)
    async with probe_of(host) as probe:
        await probe.read_evidence()
        (host.root / "dev/nvidiactl").chmod(0o600)
        with anyio.fail_after(10):
            await probe.wait_change()


async def test_change_before_the_wait_is_not_missed(host: HostTree) -> None:
    """What happens between a look and the wait ends the wait at once."""
    async with probe_of(host) as probe:
        await probe.read_evidence()
        host.load_module()
        with anyio.fail_after(10):
            await probe.wait_change()


async def test_notification_ends_the_wait(host: HostTree) -> None:
    """A release or a stuck call elsewhere calls for a look at once, also when it came before the wait."""
    async with probe_of(host, poll_seconds=60.0) as probe:
        await probe.read_evidence()
        probe.notify_change()
        with anyio.fail_after(10):
            await probe.wait_change()


async def test_hanging_watch_calls_for_a_look(host: HostTree, monkeypatch: pytest.MonkeyPatch) -> None:
    """When even the watch hangs, the next look is due, so that the evidence can say so."""
    gate = os.pipe()
    try:
        async with probe_of(host, look_timeout_seconds=0.05) as probe:
            await probe.read_evidence()
            monkeypatch.setattr(driver_probe, "read_fingerprint", lambda *_, **__: os.read(gate[0], 1))
            with anyio.fail_after(10):
                await probe.wait_change()
            os.write(gate[1], b"x")
            monkeypatch.undo()
    finally:
        os.close(gate[0])
        os.close(gate[1])
