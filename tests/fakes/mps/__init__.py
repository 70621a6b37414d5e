"""A stand-in for `nvidia-cuda-mps-control`: the real command line, directories and commands, misbehaviour on demand.

What the real one is known to do: `-d` returns when the daemon listens; without arguments it is the front end, which
sends each line of its standard input to the daemon and ends with 0 if it could; a server is started for the first
client of a user, with the limits that are the defaults at that moment; a client's own, by its environment, count where
they are tighter; `quit` waits for clients unless it is told how long. `tests/contract/mps` holds it against NVIDIA's
own of two drivers, and `docs/development/stand-ins.md` says from where each answer is known.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.programs.compiled import compile_once

_SOURCE = Path(__file__).with_name("control.py")
_CLIENT = Path(__file__).with_name("client.c")
_PROGRAM = Path(__file__).with_name("client.py")
NAME = "nvidia-cuda-mps-control"


class FakeMps:
    """The program, installed below a driver root, and what a test does to its daemons."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.program = root / "usr/bin" / NAME
        self.program.parent.mkdir(parents=True, exist_ok=True)
        # Isolated and without site packages: it starts about as fast as the real one.
        self.program.write_text(f"#!{sys.executable} -ISE\n{_SOURCE.read_text()}")
        self.program.chmod(0o755)

    def behave(self, *words: str) -> None:
        """From now on so: `refuse`, `hang-start`, `hang`, `die`, `no-limits`, `ignore-quit`, `stay`; nothing: well."""
        (self.program.parent / f"{NAME}.behaviour").write_text(" ".join(words))

    def ask(self, pipes: Path, *commands: str) -> list[str]:
        """What the daemon of this pipe directory answers."""
        done = subprocess.run(
            [self.program],
            input="".join(f"{command}\n" for command in commands),
            env={"CUDA_MPS_PIPE_DIRECTORY": str(pipes)},
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
        return done.stdout.splitlines()

    def open_front_end(self, pipes: Path) -> subprocess.Popen[str]:
        """One that stays as long as its input does."""
        return subprocess.Popen(
            [self.program],
            env={"CUDA_MPS_PIPE_DIRECTORY": str(pipes)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def install_client(self, place: Path) -> None:
        """A client that needs nothing but a kernel, for containers."""
        built = compile_once(self.root / "built", "mps-client", [_CLIENT], ["-static"])
        shutil.copy2(built, place)

    def open_client(self, environment: Mapping[str, str]) -> subprocess.Popen[str]:
        """A process that works through a daemon, as a CUDA program would: it ends with 0 when told, with 1 if cut off.

        Its first line of output says what it may use: `threads 50.0 memory 0=10240M`.
        """
        return subprocess.Popen(
            [sys.executable, "-ISE", _PROGRAM],
            env={"PATH": os.environ.get("PATH", ""), **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
