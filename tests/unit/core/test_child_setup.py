import ctypes
import errno
import os
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from nodeagent.core.children.child_setup import announce_step, die_with_parent
from nodeagent.core.children.frames import PARENT_VARIABLE, FrameDecoder, encode_frame, read_frames, write_frame
from nodeagent.core.children.incarnation import Incarnation
from nodeagent.core.children.spawn import spawn
from nodeagent.core.errors import FrameCutShort, FrameTooLarge


class Exited(BaseException):
    """Stands for the end of the process."""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The prctl calls made, in a process whose death signal must not really be set."""
    made: list[tuple[int, ...]] = []

    def prctl(*arguments: int) -> int:
        made.append(arguments)
        return 0

    def exit_process(status: int) -> None:
        raise Exited(status)

    monkeypatch.setattr(ctypes, "CDLL", lambda *_args, **_kwargs: SimpleNamespace(prctl=prctl))
    monkeypatch.setattr(os, "_exit", exit_process)
    return made


def test_death_signal_is_asked_for(calls: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    """With the parent alive, or unknown, the child asks for SIGKILL at its parent's death and goes on."""
    die_with_parent()
    monkeypatch.setenv(PARENT_VARIABLE, str(os.getppid()))
    die_with_parent()
    assert calls == [(1, 9, 0, 0, 0)] * 2


def test_parent_that_died_before_is_noticed(calls: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    """A child whose parent is another process by now ends at once."""
    monkeypatch.setenv(PARENT_VARIABLE, "1" if os.getppid() != 1 else "2")
    with pytest.raises(Exited):
        die_with_parent()


def test_refused_death_signal_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that could outlive the agent does not start its work."""
    monkeypatch.setattr(ctypes, "CDLL", lambda *_args, **_kwargs: SimpleNamespace(prctl=lambda *_a: -1))
    monkeypatch.setattr(ctypes, "get_errno", lambda: errno.EPERM)
    with pytest.raises(PermissionError, match=r"prctl\(PR_SET_PDEATHSIG\) failed"):
        die_with_parent()


def test_stray_prints_stay_out_of_the_answers() -> None:
    """What a library prints goes to the log's pipe; answers go where they belong."""
    code = (
        "import os; from nodeagent.core.children.child_setup import claim_answers, die_with_parent\n"
        "die_with_parent(); answers = claim_answers()\n"
        "os.write(1, b'stray'); os.write(answers, b'answer')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"answer", b"stray")


def test_a_step_is_the_name_of_the_process() -> None:
    """People see it in `ps`, the parent in `/proc`; the kernel keeps fifteen bytes."""
    thread = Path("/proc/thread-self/comm")
    before = thread.read_text().rstrip("\n")
    try:
        announce_step("nvml GPU 3 of a long name")
        assert thread.read_text() == "nvml GPU 3 of a\n"
    finally:
        announce_step(before)


WAITING = [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"]


@pytest.mark.may_block
async def test_the_last_step_of_a_child_that_is_gone_is_remembered() -> None:
    """While it lives the kernel tells it; afterwards only what was noted does."""
    process = spawn(WAITING, os.environ)
    incarnation = Incarnation(process, kill=lambda child: child.kill())
    assert incarnation.read_step()
    incarnation.last_step = "nvml GPU 3"
    process.communicate()
    assert incarnation.read_step() == "nvml GPU 3"


def test_frame_is_length_request_payload() -> None:
    """The wire form is fixed: two big-endian words, then the payload."""
    assert encode_frame(7, b"abc") == b"\0\0\0\3\0\0\0\7abc"


@pytest.mark.parametrize("piece", [1, 2, 7, 8, 9, 1000])
def test_frames_come_out_whole_however_they_are_cut(piece: int) -> None:
    """Pieces of any size give the same frames."""
    frames = [(1, b""), (2, b"x" * 20), (0, b"event")]
    stream = b"".join(encode_frame(*frame) for frame in frames)
    decoder = FrameDecoder()
    pieces = (stream[start : start + piece] for start in range(0, len(stream), piece))
    assert [frame for data in pieces for frame in decoder.feed(data)] == frames
    decoder.end()


def test_frame_over_the_limit_is_refused_by_both_sides() -> None:
    """A sender never makes one; a reader gives up at the header, before the payload."""
    with pytest.raises(FrameTooLarge, match="11 bytes is over the limit of 10"):
        encode_frame(1, b"x" * 11, limit_bytes=10)
    with pytest.raises(FrameTooLarge):
        list(FrameDecoder(limit_bytes=10).feed(struct.pack("!II", 11, 1)))
    assert list(FrameDecoder(limit_bytes=10).feed(encode_frame(1, b"x" * 10))) == [(1, b"x" * 10)]


@pytest.mark.parametrize(("kept", "missing"), [(3, 5), (8, 4), (10, 2)])
def test_end_inside_a_frame_is_told(kept: int, missing: int) -> None:
    """A cut stream says at least how much is missing."""
    decoder = FrameDecoder()
    assert list(decoder.feed(encode_frame(1, b"abcd")[:kept])) == []
    with pytest.raises(FrameCutShort) as caught:
        decoder.end()
    assert caught.value.missing_bytes == missing


def test_child_side_reads_until_the_end_and_writes_whole() -> None:
    """What one descriptor writes, the other reads, to the end of the stream."""
    reading, writing = os.pipe()
    write_frame(writing, 5, b"hello")
    write_frame(writing, 0, b"")
    os.close(writing)
    assert list(read_frames(reading)) == [(5, b"hello"), (0, b"")]
    os.close(reading)
