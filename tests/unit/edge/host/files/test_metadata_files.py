"""The files in which containers read about the devices of their claims."""

import errno
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

import pytest

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.errors import FileNotWritten, FileTooLarge, FileUnreadable
from nodeagent.edge.host.files import container_label, metadata_files
from nodeagent.edge.host.files.container_label import LABEL
from nodeagent.edge.host.files.metadata_files import HostMetadataFiles


def look(files: HostMetadataFiles) -> tuple[bytes, int, int]:
    """The content of the file, its mode, and that of its folder."""
    path = Path(files.locate("u1", "gpu"))
    return path.read_bytes(), path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777


def hold(files: HostMetadataFiles) -> BinaryIO:
    return Path(files.locate("u1", "gpu")).open("rb")


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[HostMetadataFiles]:
    worker = WorkerThread("metadata")
    yield HostMetadataFiles(tmp_path / "metadata", worker)
    worker.close()


async def test_a_file_is_where_it_is_said_to_be_and_everybody_may_read_it(files: HostMetadataFiles) -> None:
    """A container's user is anybody."""
    assert (await files.read("u1"), await files.list_uids()) == ({}, ())
    await files.write("u1", {"gpu": b"one", "other": b"two"})
    assert look(files) == (b"one", 0o644, 0o755)
    assert await files.read("u1") == {"gpu": b"one", "other": b"two"}
    await files.write("u2", {})
    assert await files.list_uids() == ("u1", "u2")


async def test_a_container_keeps_the_file_that_it_was_started_with(files: HostMetadataFiles) -> None:
    """A new one is another file, and never half of one."""
    await files.write("u1", {"gpu": b"one"})
    with hold(files) as held:
        await files.write("u1", {"gpu": b"two and more"})
        assert held.read() == b"one"
    assert await files.read("u1") == {"gpu": b"two and more"}


async def test_what_a_killed_writer_left_is_no_file_and_goes_with_the_next(files: HostMetadataFiles) -> None:
    await files.write("u1", {"gpu": b"one"})
    left = Path(files.locate("u1", "gpu")).with_name(".gpu.json.0123abcd.tmp")
    left.write_bytes(b"ha")
    assert await files.read("u1") == {"gpu": b"one"}
    await files.write("u1", {"gpu": b"two"})
    assert not left.exists()


async def test_the_files_of_one_claim_are_removed_and_those_of_others_stay(files: HostMetadataFiles) -> None:
    for uid in ("u1", "u2"):
        await files.write(uid, {"gpu": b"one"})
    await files.remove("u1")
    await files.remove("u1")
    assert await files.list_uids() == ("u2",)


async def test_what_is_no_folder_and_no_file_is_told_by_name(files: HostMetadataFiles, tmp_path: Path) -> None:
    """It is neither followed nor taken away."""
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "u1").write_text("?")
    with pytest.raises(FileUnreadable, match="u1"):
        await files.read("u1")
    with pytest.raises(FileNotWritten, match=r"u1.*create it|create it.*u1"):
        await files.write("u1", {"gpu": b"one"})
    with pytest.raises(FileNotWritten, match="remove it"):
        await files.remove("u1")
    (tmp_path / "metadata" / "u2").mkdir()
    (tmp_path / "metadata" / "u2" / "gpu.json").symlink_to("/etc/hostname")
    with pytest.raises(FileUnreadable):
        await files.read("u2")


async def test_a_file_of_any_length_is_not_read(files: HostMetadataFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    await files.write("u1", {"gpu": b"one"})
    monkeypatch.setattr(metadata_files, "READ_LIMIT_BYTES", 2)
    with pytest.raises(FileTooLarge):
        await files.read("u1")


async def test_a_disk_that_refuses_is_told(files: HostMetadataFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    await files.write("u1", {"gpu": b"one"})

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(shutil, "rmtree", refuse)
    with pytest.raises(FileNotWritten, match=r"(?i)read-only"):
        await files.remove("u1")
    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(FileNotWritten, match=r"(?i)read-only"):
        await files.write("u1", {"gpu": b"two"})
    assert await files.read("u1") == {"gpu": b"one"}


async def test_a_container_behind_selinux_may_read_it(
    files: HostMetadataFiles, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    labelled: list[tuple[str, bytes]] = []

    def label(path: Path, name: str, value: bytes, *, follow_symlinks: bool) -> None:
        assert (path.name, name, follow_symlinks) == ("gpu.json", LABEL[0], False)
        labelled.append((str(path), value))

    monkeypatch.setattr(os, "setxattr", label)
    (tmp_path / "enforce").write_text("1")
    monkeypatch.setattr(container_label, "ENFORCE", tmp_path / "enforce")
    await files.write("u1", {"gpu": b"one"})
    assert labelled == [(files.locate("u1", "gpu"), LABEL[1])]
