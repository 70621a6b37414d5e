"""Run as a program: replaces a file again and again, killed with SIGKILL at every system call in turn.

Each round forks a writer that kills itself before or after its nth system call, and looks at what it left. Prints one
JSON line a round: what was killed, what the file holds, what the writer had acknowledged, what else lies about.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from nodeagent.edge.host.files.atomic_file import write_atomically

CALLS = ("open", "write", "fchmod", "fsync", "rename", "close")
CHUNK = 300


def arm(deadly: int, *, after: bool) -> None:
    """Have this process die at its nth watched call; writes are cut short, as a real one may be."""
    numbers = count(1)

    def guard(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*args: Any, **kwargs: Any) -> Any:
            is_last = next(numbers) == deadly
            if is_last and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            if name == "write":
                args = (args[0], args[1][:CHUNK])
            result = call(*args, **kwargs)
            if is_last:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return guarded

    for name in CALLS:
        setattr(os, name, guard(name, getattr(os, name)))


def write_and_die(path: Path, content: bytes, deadly: int, *, after: bool) -> int:
    """The wait status of a writer that was armed."""
    child = os.fork()
    if child == 0:
        arm(deadly, after=after)
        write_atomically(path, content)
        os._exit(0)
    return os.waitpid(child, 0)[1]


def main(directory: Path) -> None:
    path = directory / "state"
    path.write_bytes(b"old" * 400)
    for after in (False, True):
        for deadly in count(1):
            status = write_and_die(path, b"new" * 400, deadly, after=after)
            found = path.read_bytes()
            others = [entry for entry in directory.iterdir() if entry != path]
            report = {
                "killed": os.WIFSIGNALED(status),
                "found": {b"old" * 400: "old", b"new" * 400: "new"}.get(found, f"torn at {len(found)}"),
                "others": [entry.name for entry in others],
            }
            sys.stdout.write(json.dumps(report) + "\n")
            for entry in others:
                entry.unlink()
            path.write_bytes(b"old" * 400)
            if not report["killed"]:
                break


if __name__ == "__main__":
    main(Path(sys.argv[1]))
