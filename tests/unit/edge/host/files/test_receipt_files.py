"""The folders of receipts on a disk."""

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.errors import FileNotWritten, FileUnreadable
from nodeagent.edge.host.files.receipt_files import READ_LIMIT_BYTES, HostReceiptFiles


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "receipts"


@pytest.fixture
def worker() -> Iterator[WorkerThread]:
    thread = WorkerThread("receipts")
    yield thread
    thread.close()


@pytest.fixture
def files(root: Path, worker: WorkerThread) -> HostReceiptFiles:
    return HostReceiptFiles(root, worker)


def block(root: Path, name: str) -> None:
    """A file where a folder should be."""
    root.mkdir(exist_ok=True)
    (root / name).write_text("in the way")


async def test_a_folder_has_files_and_places_for_mounts(files: HostReceiptFiles, root: Path) -> None:
    """Everybody may read, nobody but the agent may write; opening again changes nothing."""
    for _ in range(2):
        await files.open("a1", {"gpus.json": b"{}\n"}, (("vgpu/limits", False), ("vgpu/own", True)))
    assert Path(files.locate("a1")) == root / "a1"
    assert stat.S_IMODE((root / "a1").stat().st_mode) == 0o755
    assert stat.S_IMODE((root / "a1/gpus.json").stat().st_mode) == 0o644
    assert (root / "a1/vgpu/limits").read_bytes() == b""
    assert (root / "a1/vgpu/own").is_dir()


async def test_a_file_is_replaced_whole_and_only_where_it_differs(files: HostReceiptFiles, root: Path) -> None:
    """Whoever has the old file open reads the old content to its end."""
    await files.write({"a1": {"faults.json": b"one"}})
    before = (root / "a1/faults.json").stat().st_ino
    await files.write({"a1": {"faults.json": b"one"}})
    assert (root / "a1/faults.json").stat().st_ino == before
    with (root / "a1/faults.json").open("rb") as reader:
        await files.write({"a1": {"faults.json": b"two"}})
        assert reader.read() == b"one"
    assert (root / "a1/faults.json").read_bytes() == b"two"
    assert await files.read() == {"a1": {"faults.json": b"two"}}


async def test_a_folder_that_cannot_be_written_holds_up_no_other(files: HostReceiptFiles, root: Path) -> None:
    """And is named."""
    block(root, "a1")
    with pytest.raises(FileNotWritten, match="a1"):
        await files.write({"a1": {"faults.json": b"x"}, "a2": {"faults.json": b"y"}})
    assert (root / "a2/faults.json").read_bytes() == b"y"


async def test_a_mount_point_that_cannot_be_made_is_named(files: HostReceiptFiles, root: Path) -> None:
    """As a container would not start."""
    await files.write({"a1": {"vgpu": b"in the way"}})
    with pytest.raises(FileNotWritten, match="vgpu"):
        await files.open("a1", {}, (("vgpu/limits", False),))


async def test_all_files_are_read_but_foreign_ones(files: HostReceiptFiles, root: Path) -> None:
    """Links, directories and what is too large are passed over."""
    assert await files.read() == {}
    await files.write({"a1": {"gpus.json": b"1"}, "a2": {}})
    (root / "a2/faults.json").symlink_to(root / "a1/gpus.json")
    (root / "a1/faults.json").write_bytes(b"x" * (READ_LIMIT_BYTES + 1))
    (root / "stray").write_text("a file")
    assert await files.read() == {"a1": {"gpus.json": b"1"}, "a2": {}, "stray": {}}
    assert await files.list_names() == ("a1", "a2", "stray")


async def test_a_folder_is_removed(files: HostReceiptFiles, root: Path) -> None:
    """Once and again; what is no folder is named."""
    await files.write({"a1": {"gpus.json": b"1"}})
    await files.remove("a1")
    await files.remove("a1")
    assert await files.list_names() == ()
    (root / "stray").write_text("a file")
    with pytest.raises(FileNotWritten, match="stray"):
        await files.remove("stray")


async def test_an_unreadable_directory_is_named(tmp_path: Path, worker: WorkerThread) -> None:
    """A name too long is no missing directory."""
    files = HostReceiptFiles(tmp_path / ("x" * 300), worker)
    with pytest.raises(FileUnreadable):
        await files.list_names()
