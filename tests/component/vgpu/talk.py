"""A process of the container, asked line by line: what its ledger and its files do."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from nodeagent.edge.host.vgpu.usage_file import Reason, Status
from tests.component.vgpu.build import build_ledger_program
from tests.component.vgpu.place import Place


class Talk:
    """Owns the words of `src/ledger_talk.c`; `ask` is good for those of any other program too."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        self.answers: Final = process.stdout

    def say(self, line: str) -> None:
        """Without waiting for an answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def hear(self) -> str:
        return self.answers.readline().strip()

    def ask(self, line: str) -> str:
        self.say(line)
        return self.hear()

    def look(self) -> tuple[Status, Reason, int]:
        """What it does, why, and its limit for the first device."""
        status, reason, _, limit = map(int, self.ask("look").split())
        return Status(status), Reason(reason), limit

    def reserve(self, size: int, slot: int = 0) -> str:
        return self.ask(f"reserve {slot} {size}")

    def release(self, size: int, slot: int = 0) -> None:
        assert self.ask(f"release {slot} {size}") == "released"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> str:
        """What it has written to its standard error."""
        self.say("end")
        return self._process.communicate()[1]


@contextmanager
def talk(place: Place, program: str = "ledger_talk", front: Sequence[str] = (), **more: str) -> Iterator[Talk]:
    """Such a process, with this environment besides; `front` is a command that becomes it, or starts it."""
    with subprocess.Popen(
        [*front, build_ledger_program(program)],
        env=place.environ(**more),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Talk(process)
        finally:
            process.kill()
