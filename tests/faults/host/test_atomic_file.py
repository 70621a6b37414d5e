"""Replacing files on a disk that is full, read-only or broken, and by a process that is killed."""

import errno
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from nodeagent.edge.host.errors import FileNotWritten
from nodeagent.edge.host.files.atomic_file import remove_stale_temporaries, write_atomically

STAYS = "the old file stays"
OLD, NEW = b"old" * 400, b"new" * 400
CALLS = ("open", "write", "fchmod", "fsync", "rename", "close")


def test_writer_killed_at_any_call_leaves_old_or_new(tmp_path: Path) -> None:
    """Whichever system call is the last, the file is whole; once acknowledged it is the new one; leftovers are ours."""
    program = Path(__file__).with_name("killed_writer.py")
    printed = subprocess.run([sys.executable, str(program), str(tmp_path)], capture_output=True, check=True, text=True)
    rounds = [json.loads(line) for line in printed.stdout.splitlines()]
    assert len(rounds) > 2 * len(CALLS)
    assert {each["found"] for each in rounds if each["killed"]} == {"old", "new"}
    assert [each["found"] for each in rounds if not each["killed"]] == ["new", "new"]
    assert all(re.fullmatch(r"\.state\.[0-9a-f]{8}\.tmp", name) for each in rounds for name in each["others"])


def break_call(monkeypatch: pytest.MonkeyPatch, number: int, code: int) -> list[str]:
    """Have the nth watched system call fail; the list says which call it was."""
    numbers, broken = count(1), list[str]()

    def guard(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*args: Any, **kwargs: Any) -> Any:
            if next(numbers) == number:
                broken.append(name)
                if name == "close":
                    call(*args)
                raise OSError(code, os.strerror(code))
            return call(*args, **kwargs)

        return guarded

    for name in CALLS:
        monkeypatch.setattr(os, name, guard(name, getattr(os, name)))
    return broken


def attempt_write(path: Path) -> FileNotWritten | None:
    try:
        write_atomically(path, NEW)
    except FileNotWritten as error:
        return error
    return None


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EMFILE, errno.EDQUOT])
def test_error_at_any_call_leaves_old_or_new_and_says_which(tmp_path: Path, code: int) -> None:
    """Each failing call gives the one error, the file is whole, nothing is left beside it, and the next write heals."""
    path = tmp_path / "state"
    seen: list[str] = []
    for number in count(1):
        path.write_bytes(OLD)
        with pytest.MonkeyPatch.context() as patched:
            broken = break_call(patched, number, code)
            error = attempt_write(path)
        if not broken:
            assert error is None
            break
        seen += broken
        assert error is not None
        assert error.errno == code
        assert path.read_bytes() == (NEW if error.replaced else OLD)
        assert [entry.name for entry in tmp_path.iterdir()] == ["state"]
        write_atomically(path, NEW)
        assert path.read_bytes() == NEW
    assert set(seen) == set(CALLS)


def test_file_size_limit_is_an_error_with_its_remedy(tmp_path: Path) -> None:
    """A process that may not write so much says so, and the old file stays."""
    path = tmp_path / "state"
    path.write_bytes(OLD)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(FileNotWritten, match=r"file too large \(the old file stays\): raise the file size limit"):
            write_atomically(path, NEW)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == OLD
    assert [entry.name for entry in tmp_path.iterdir()] == ["state"]


def can_mount() -> bool:
    unshare = shutil.which("unshare")
    return (
        unshare is not None
        and subprocess.run([unshare, "-m", "true"], capture_output=True, check=False).returncode == 0
    )


FULL_DISK = """
import subprocess, sys
from pathlib import Path
from nodeagent.edge.host.files.atomic_file import write_atomically
from nodeagent.edge.host.errors import FileNotWritten

disk = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)], check=True)
write_atomically(disk / "state", b"old")
(disk / "ballast").write_bytes(b"x" * 40_000)

def attempt(content, size_bytes=0):
    try:
        write_atomically(disk / "state", content, size_bytes=size_bytes)
    except FileNotWritten as error:
        print(str(error).replace(str(disk), "DISK").partition(": ")[2])
    print((disk / "state").read_bytes()[:3], sorted(entry.name for entry in disk.iterdir()))

attempt(b"n" * 30_000)
attempt(b"nnn", 30_000)
(disk / "ballast").unlink()
attempt(b"n" * 30_000)
subprocess.run(["mount", "-o", "remount,nr_inodes=2", str(disk)], check=True)
attempt(b"i" * 10)
subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
attempt(b"r" * 10)
"""


INODES = "its file system has no inode left (`df -i`): remove files from it"


@pytest.mark.skipif(not can_mount(), reason="this user may not mount a small disk")
def test_full_and_read_only_disks_keep_the_old_file_and_heal(tmp_path: Path) -> None:
    """On a real full disk the old file stays and space given back is enough; on a read-only one the error says so."""
    command = ["unshare", "-m", sys.executable, "-c", FULL_DISK, str(tmp_path)]
    printed = subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()
    assert printed == [
        f"write the temporary file: no space left on device ({STAYS}): free space on its file system",
        "b'old' ['ballast', 'state']",
        f"write the temporary file: no space left on device ({STAYS}): free space on its file system",
        "b'old' ['ballast', 'state']",
        "b'nnn' ['state']",
        f"create a temporary file beside it: no space left on device ({STAYS}): {INODES}",
        "b'nnn' ['state']",
        f"create a temporary file beside it: read-only file system ({STAYS}): remount its file system read-write",
        "b'nnn' ['state']",
    ]


def test_leftovers_of_a_killed_writer_are_cleaned_at_the_next_start(tmp_path: Path) -> None:
    """What a killed writer left is removed by name pattern."""
    write_atomically(tmp_path / "state", NEW)
    (tmp_path / ".state.00c0ffee.tmp").write_bytes(b"half")
    assert remove_stale_temporaries(tmp_path / "state") == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["state"]


def test_leftovers_of_all_files_of_a_kind_are_cleaned_at_once(tmp_path: Path) -> None:
    """Those that begin alike and no others; what somebody keeps under a name of that kind is not ours."""
    for name in (".part-1.json.00c0ffee.tmp", ".part-2.json.c0ffee00.tmp", ".apart-1.json.00c0ffee.tmp", ".part-x.tmp"):
        (tmp_path / name).write_bytes(b"half")
    assert remove_stale_temporaries(tmp_path / "part-", is_prefix=True) == 2
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".apart-1.json.00c0ffee.tmp", ".part-x.tmp"]


def test_the_only_writer_clears_what_killed_ones_left_beside_its_file(tmp_path: Path) -> None:
    """Leftovers of this file alone; and where the directory cannot be read the write itself says so."""
    (tmp_path / ".state.00c0ffee.tmp").write_bytes(b"half")
    (tmp_path / ".other.00c0ffee.tmp").write_bytes(b"half")
    write_atomically(tmp_path / "state", NEW)
    assert (tmp_path / ".state.00c0ffee.tmp").exists()
    write_atomically(tmp_path / "state", NEW, only_writer=True)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".other.00c0ffee.tmp", "state"]
    with pytest.raises(FileNotWritten, match="create a temporary file"):
        write_atomically(tmp_path / "gone" / "state", NEW, only_writer=True)
