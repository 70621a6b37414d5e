"""One control daemon's program and directories, whoever wrote the program."""

import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodeagent.edge.mps.processes import find_daemon
from tests.fakes.mps import NAME, FakeMps
from tests.originals.packages import DRIVERS, REASON, find_program

STAND_IN = "stand-in"


@dataclass(frozen=True, slots=True)
class Answer:
    """How the front end ended, and what it printed."""

    status: int
    lines: tuple[str, ...]


class Control:
    """The program, and the daemon that it becomes."""

    def __init__(self, program: Path, place: Path, driver: str) -> None:
        self.driver, self.program, self.pipes, self.logs = driver, program, place / "pipe", place / "log"
        for directory in (self.pipes, self.logs):
            directory.mkdir()

    def run(self, *arguments: str, text: str = "", wrapper: Sequence[str] = ()) -> Answer:
        """The program itself, with nothing but the environment that the agent gives it."""
        done = subprocess.run(
            [*wrapper, str(self.program), *arguments],
            input=text,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=20,
            check=False,
        )
        return Answer(done.returncode, tuple(done.stdout.splitlines()))

    @property
    def environment(self) -> dict[str, str]:
        return {
            "CUDA_VISIBLE_DEVICES": "GPU-00000000-0000-0000-0000-000000000000",
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipes),
            "CUDA_MPS_LOG_DIRECTORY": str(self.logs),
        }

    def open_front_end(self) -> subprocess.Popen[str]:
        """One that stays as long as its input does."""
        return subprocess.Popen(
            [self.program], env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, *commands: str, wrapper: Sequence[str] = ()) -> Answer:
        """What it says to these commands, by one front end."""
        return self.run(text="".join(f"{command}\n" for command in commands), wrapper=wrapper)

    def start(self) -> int:
        """The process of a daemon that listens."""
        assert self.run("-d") == Answer(0, ())
        pid = self.find()
        assert pid is not None
        return pid

    def find(self) -> int | None:
        return find_daemon(self.pipes)

    def read_log(self) -> list[str]:
        """The lines of its log without time and process."""
        return [line.partition("] ")[2] for line in (self.logs / "control.log").read_text().splitlines()]

    def wait_log(self, count: int) -> list[str]:
        """The lines of its log once there are so many: a thread of the daemon writes them later than it answers."""
        deadline = time.monotonic() + 20
        while len(lines := self.read_log()) < count:
            assert time.monotonic() < deadline, lines
            time.sleep(0.005)
        return lines

    def end(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        wait_end(pid)

    def close(self) -> None:
        while (pid := self.find()) is not None:
            self.end(pid)


def wait_end(pid: int) -> None:
    """Return when a process that is nobody's child has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], 20)[0], f"{pid} does not end"
    finally:
        os.close(descriptor)


@pytest.fixture(params=[STAND_IN, *DRIVERS])
def control(request: pytest.FixtureRequest, short_dir: Path) -> Iterator[Control]:
    found = FakeMps(short_dir / "driver").program if request.param == STAND_IN else find_program(request.param, NAME)
    if found is None:
        pytest.skip(REASON)
    control = Control(found, short_dir, request.param)
    yield control
    control.close()
