"""A stand-in for nvidia-smi: answers `--gpu-reset` as a file says, and keeps the settings of GPUs in files.

Run as a program with the folder of its files in `FAKE_NVIDIA_SMI`. Without a driver, or its library, every question has
the one answer of the original.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Final

from tests.fakes.nvidia_smi.answers import ANSWERS, RUN

ANSWER, LOG, HANGING = "answer", "log", "hanging"
_OPTIONS: Final = {"-pm": "persistence", "-pl": "power", "-c": "compute-mode", "-ac": "clocks"}


class FakeSmi:
    """The folder of one stand-in, for tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.program = folder / "nvidia-smi"
        root = Path(__file__).parents[3]
        self.program.write_text(
            f'#!/bin/sh\nFAKE_NVIDIA_SMI={folder} PYTHONPATH={root} exec {sys.executable} -m {__name__} "$@"\n'
        )
        self.program.chmod(0o755)

    def give(self, *names: str) -> None:
        """The answers to the next resets; the last answer stays."""
        (self.folder / ANSWER).write_text("\n".join(names))

    def read_log(self) -> list[str]:
        """The command lines so far."""
        log = self.folder / LOG
        return log.read_text().splitlines() if log.exists() else []

    def is_hanging(self) -> bool:
        """Whether a reset has begun that does not end."""
        return (self.folder / HANGING).exists()

    def end_hanging(self) -> None:
        """End a reset that does not end by itself."""
        place = self.folder / HANGING
        os.kill(int(place.read_text()), signal.SIGKILL)
        place.unlink()

    def read_setting(self, option: str, address: str) -> str:
        """A setting as it was last set; empty for one that nobody has set."""
        place = self.folder / f"{_OPTIONS[option]}-{address}"
        return place.read_text() if place.exists() else ""


def main(words: list[str]) -> int:
    """Answer one command line."""
    folder = Path(os.environ["FAKE_NVIDIA_SMI"])
    with (folder / LOG).open("a") as log:
        log.write(f"{' '.join(words)}\n")
    first, *rest = (folder / ANSWER).read_text().splitlines()
    answer = ANSWERS[first]
    for option, name in _OPTIONS.items():
        if option in words and answer.source != RUN:
            address = words[words.index("-i") + 1]
            (folder / f"{name}-{address}").write_text(words[words.index(option) + 1])
            return 0
    if rest:
        (folder / ANSWER).write_text("\n".join(rest))
    if answer.hangs:
        place = folder / HANGING
        place.with_suffix(".new").write_text(str(os.getpid()))
        place.with_suffix(".new").rename(place)
        signal.pause()
    sys.stdout.write(answer.said)
    return answer.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
