"""The host's ports with their work in a thread."""

import os
from pathlib import Path

import anyio
import pytest

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.devices.device_node_files import DeviceNodeFiles
from nodeagent.edge.host.driver.off_loop import HostDeviceNodes, MarkerDirectory
from nodeagent.edge.host.errors import FileNotWritten, FileUnreadable, HostStuck
from nodeagent.model.driver import NodeRepair
from tests.unit.edge.host.tree import HostTree


def build_markers(directory: Path, worker: WorkerThread) -> MarkerDirectory:
    return MarkerDirectory(directory, worker, timeout_seconds=5, poll_seconds=0.01)


async def test_marker_is_written_read_and_removed(tmp_path: Path, worker: WorkerThread) -> None:
    """The directory is made with the first marker; markers that are not there are not in the answer."""
    markers = build_markers(tmp_path / "run/validations", worker)
    assert await markers.read_markers(["driver-ready"]) == {}
    await markers.write_marker("driver-ready", "A=1\n")
    assert await markers.read_markers(["driver-ready", "other"]) == {"driver-ready": "A=1\n"}
    assert (tmp_path / "run/validations/driver-ready").stat().st_mode & 0o777 == 0o644
    await markers.remove_marker("driver-ready")
    await markers.remove_marker("driver-ready")
    assert await markers.read_markers(["driver-ready"]) == {}


async def test_change_of_a_marker_ends_the_wait(tmp_path: Path, worker: WorkerThread) -> None:
    """Removal, replacement and appearance are noticed; other files are not."""
    markers = build_markers(tmp_path, worker)
    path = tmp_path / "driver-ready"
    for change in (lambda: path.write_text("x"), lambda: path.write_text("other"), path.unlink):
        await markers.read_markers(["driver-ready"])
        with anyio.move_on_after(0.05) as quiet:
            (tmp_path / "foreign").write_text("x")
            await markers.wait_change()
        assert quiet.cancelled_caught
        change()
        with anyio.fail_after(10):
            await markers.wait_change()


async def test_marker_removed_right_after_it_was_written_is_noticed(tmp_path: Path, worker: WorkerThread) -> None:
    """Absent, written, removed: that the end looks like the beginning hides nothing."""
    markers = build_markers(tmp_path, worker)
    await markers.read_markers(["driver-ready"])
    await markers.write_marker("driver-ready", "x")
    (tmp_path / "driver-ready").unlink()
    with anyio.fail_after(10):
        await markers.wait_change()


async def test_marker_that_cannot_be_handled_is_an_error(tmp_path: Path, worker: WorkerThread) -> None:
    """Each operation names what it could not do."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "driver-ready").mkdir()
    with pytest.raises(FileNotWritten, match="create its directory"):
        await build_markers(tmp_path / "file", worker).write_marker("driver-ready", "")
    markers = build_markers(tmp_path, worker)
    with pytest.raises(FileUnreadable, match="driver-ready"):
        await markers.read_markers(["driver-ready"])
    with pytest.raises(FileNotWritten, match="remove it"):
        await markers.remove_marker("driver-ready")


async def test_what_a_killed_writer_left_goes_though_nothing_is_written(tmp_path: Path, worker: WorkerThread) -> None:
    """The marker may be right as it is."""
    (tmp_path / "driver-ready").write_text("A=1\n")
    (tmp_path / ".driver-ready.0123abcd.tmp").write_text("A=")
    assert await build_markers(tmp_path, worker).read_markers(["driver-ready"]) == {"driver-ready": "A=1\n"}
    assert not (tmp_path / ".driver-ready.0123abcd.tmp").exists()


async def test_hanging_file_system_is_an_error(tmp_path: Path, worker: WorkerThread) -> None:
    """A directory that does not answer is named; the loop goes on."""
    gate = os.pipe()
    markers = MarkerDirectory(tmp_path, worker, timeout_seconds=0.05)
    markers._write = lambda name, content: os.read(gate[0], 1)  # type: ignore[assignment,method-assign]  # a disk that hangs
    try:
        with pytest.raises(HostStuck, match="no answer about"):
            await markers.write_marker("driver-ready", "")
        os.write(gate[1], b"x")
        assert await MarkerDirectory(tmp_path, worker, timeout_seconds=30).read_markers(["driver-ready"]) == {}
    finally:
        os.close(gate[0])
        os.close(gate[1])


async def test_hanging_watch_calls_for_a_reading(tmp_path: Path, worker: WorkerThread) -> None:
    """A directory that does not answer ends the wait, so that the next reading can say so."""
    gate = os.pipe()
    markers = build_markers(tmp_path, worker)
    markers._identify = lambda: (os.read(gate[0], 1),)  # type: ignore[method-assign]  # a disk that hangs
    try:
        with anyio.fail_after(10):
            await markers.wait_change()
        os.write(gate[1], b"x")
    finally:
        os.close(gate[0])
        os.close(gate[1])


async def test_watch_that_is_given_up_leaves_no_stuck_thread(tmp_path: Path, worker: WorkerThread) -> None:
    """Giving up a wait at any moment does not make its thread look stuck."""
    markers = MarkerDirectory(tmp_path, worker, poll_seconds=0)
    await markers.read_markers(["driver-ready"])
    for _ in range(50):
        with anyio.move_on_after(0.001):
            await markers.wait_change()
        assert worker.stuck() == ()


async def test_repair_runs_off_the_loop(host: HostTree, worker: WorkerThread) -> None:
    """Nothing to repair is an empty answer."""
    files = DeviceNodeFiles(host.root, proc_root=host.proc, host_root=host.root)
    assert await HostDeviceNodes(lambda: files, worker).repair() == NodeRepair()


async def test_repair_that_hangs_has_failed(host: HostTree, worker: WorkerThread) -> None:
    """A hanging /dev is reported as a failed repair."""
    gate = os.pipe()

    class HangingFiles(DeviceNodeFiles):
        def repair(self) -> NodeRepair:
            os.read(gate[0], 1)
            return NodeRepair()

    nodes = HostDeviceNodes(lambda: HangingFiles(host.root), worker, timeout_seconds=0.05)
    try:
        repair = await nodes.repair()
        os.write(gate[1], b"x")
    finally:
        os.close(gate[0])
        os.close(gate[1])
    assert "repairing device nodes did not return" in repair.failed[0]
