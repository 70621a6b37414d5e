"""What processes of the former library had is taken back once the host sees that they have ended, and not before."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodeagent.edge.host.errors import FileNotWritten, FileUnreadable
from nodeagent.edge.host.vgpu import usage_file
from nodeagent.edge.host.vgpu.ended_processes import Living, forget_ended, list_held, read_living
from nodeagent.edge.host.vgpu.layout import OWNER_HELD, PID_SHIFT, PROCESS, SHARE, USAGE_BYTES, USAGE_HEADER
from nodeagent.edge.host.vgpu.usage_file import bound_usage, create_usage, read_usage

NAMESPACE = 0xF0000123
OTHER = 0xF0000456


@pytest.fixture
def path(tmp_path: Path) -> Path:
    create_usage(tmp_path / "usage")
    return tmp_path / "usage"


def put(path: Path, number: int, pid: int, start: int, namespace: int = NAMESPACE, *, is_locked: bool = False) -> None:
    """A process in a slot, with a byte of each device."""
    owner = OWNER_HELD << 62 | pid << PID_SHIFT | start
    shares = SHARE.pack(used=1) * 16
    content = PROCESS.pack(owner=owner, pid_namespace=namespace, locked_by=owner if is_locked else 0, shares=shares)
    with path.open("r+b") as file:
        file.seek(USAGE_HEADER.offsets["high_water"])
        file.write((number + 1).to_bytes(4, "little"))
        file.seek(USAGE_HEADER.size + number * PROCESS.size)
        file.write(content)


@contextmanager
def opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def list_pids(path: Path) -> list[int]:
    return [process.pid for process in read_usage(path).processes]


def make_process(root: Path, pid: int, own_pids: str, start: int, name: str = "sh") -> None:
    folder = root / str(pid)
    folder.mkdir(parents=True)
    (folder / "status").write_text(f"Name:\t{name}\nNSpid:\t{own_pids}\n")
    (folder / "stat").write_text(f"{pid} ({name}) S {' '.join('0' for _ in range(18))} {start} 0 0\n")


def test_what_has_ended_is_forgotten(path: Path) -> None:
    """Not who lives, shows a lock, was written without its start, or is seen by no process of this host."""
    put(path, 0, 1, 100)
    put(path, 1, 2, 100, is_locked=True)
    put(path, 2, 3, 0)
    put(path, 3, 4, 100, namespace=7)
    put(path, 4, 5, 100, namespace=OTHER)
    put(path, 5, 6, 100, namespace=OTHER)
    with opened(path) as descriptor:
        slots = list_held(descriptor)
        assert [slot.wants_host for slot in slots] == [True, False, False, False, True, True]
        assert forget_ended(path, descriptor, slots, frozenset({Living(6, 100)})) == 1
    assert list_pids(path) == [2, 3, 4, 5, 6], "where one of its namespace lives, the library sees to the rest"
    with opened(path) as descriptor:
        assert os.pread(descriptor, PROCESS.size, USAGE_HEADER.size) == bytes(PROCESS.size)


def test_a_file_that_its_container_has_cut_is_left_alone(path: Path) -> None:
    """Written into, it would only be longer again."""
    put(path, 0, 1, 100)
    os.truncate(path, 4096)
    with opened(path) as descriptor:
        assert list_held(descriptor) == ()


def test_processes_are_known_by_their_own_pid_and_start(tmp_path: Path) -> None:
    """Whatever their names are; nothing is known where no process of another namespace is seen."""
    make_process(tmp_path, 1, "1", 10)
    (tmp_path / "meminfo").write_text("")
    (tmp_path / "77").mkdir()
    assert read_living(tmp_path) is None
    make_process(tmp_path, 900, "900\t7", 333, name="a) S 1")
    assert read_living(tmp_path) == frozenset({Living(1, 10), Living(7, 333)})


def test_where_containers_are_not_seen_nothing_is_forgotten(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As from a pod without the host's pid namespace."""
    put(path, 0, 1, 100)
    monkeypatch.setattr(usage_file, "read_living", lambda: None)
    bound_usage(path)
    assert list_pids(path) == [1]
    monkeypatch.setattr(usage_file, "read_living", lambda: frozenset({Living(1, 101)}))
    bound_usage(path)
    assert list_pids(path) == []


def test_what_the_disk_refuses_is_said(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(path, 0, 1, 100)
    monkeypatch.setattr(usage_file, "read_living", lambda: frozenset({Living(9, 9)}))

    def refuse(*_arguments: object) -> int:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", refuse)
        with pytest.raises(FileNotWritten, match="take back"):
            bound_usage(path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "pread", refuse)
        with pytest.raises(FileUnreadable, match="usage"):
            bound_usage(path)
    assert path.stat().st_size == USAGE_BYTES
