"""What the pod does before it is told to stop, as a container's first process would see it."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.deploy.chart import pod_of, read_manifest
from tests.support.programs.namespaces import FIRST_OF_A_CONTAINER, needs_proc_mounts

pytestmark = [needs_proc_mounts, pytest.mark.may_block("nothing here runs on an event loop")]
LIMIT_SECONDS: Final = 30.0
FIRST: Final = "echo 1 >began; read line <go; sleep 1000 & wait"
"""A first process that has begun, has no handler, and starts its one child when it is let go on."""
LOOK: Final = '"$@"; read children </proc/1/task/1/children; test -n "$children"'


def find_children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextmanager
def running(command: tuple[str, ...], directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, cwd=directory) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_looking(hook: subprocess.Popen[bytes]) -> None:
    """Return when the hook sleeps between two looks, or has ended."""
    limit = time.monotonic() + LIMIT_SECONDS
    while hook.poll() is None and not any(b"sleep" in name for name in read_names(hook.pid)):
        assert time.monotonic() < limit
        time.sleep(0.005)


def read_names(pid: int) -> list[bytes]:
    """The programs below a process that are there at this moment."""
    try:
        children = find_children(pid)
        return [Path(f"/proc/{child}/comm").read_bytes() for child in children] + [
            name for child in children for name in read_names(child)
        ]
    except (FileNotFoundError, ProcessLookupError):
        return []


def test_the_pod_is_told_to_stop_once_its_first_process_hears(tmp_path: Path) -> None:
    """Tini takes signals before it starts its child; until then the kernel would keep the one that says to stop."""
    hook = pod_of(read_manifest())["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    for name in ("began", "go"):
        os.mkfifo(tmp_path / name)
    with running((*FIRST_OF_A_CONTAINER, "--mount-proc", "sh", "-c", FIRST), tmp_path) as container:
        (tmp_path / "began").read_text()
        (first,) = find_children(container.pid)
        into = ("nsenter", f"--target={first}", "--user", "--preserve-credentials", "--pid", "--mount")
        with running((*into, "sh", "-c", LOOK, "sh", *hook), tmp_path) as asked:
            wait_looking(asked)
            (tmp_path / "go").write_text("\n")
            assert asked.wait(LIMIT_SECONDS) == 0
