"""Children that are started and given up before anybody owns them."""

import os
import subprocess
import sys

import pytest

from nodeagent.core.children.incarnation import Incarnation
from nodeagent.core.children.spawn import discard, spawn

WAITING = [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"]


def test_a_child_that_nobody_wants_is_ended() -> None:
    """Its pipes are closed and it is reaped."""
    process = spawn(WAITING, os.environ)
    discard(process)
    assert process.returncode == -9


def test_a_child_without_pipes_is_ended_too() -> None:
    """Whatever it was started with."""
    process = subprocess.Popen(WAITING, stdin=subprocess.PIPE)
    assert process.stdin is not None
    stdin, process.stdin = process.stdin, None
    discard(process)
    stdin.close()
    assert process.returncode == -9


@pytest.mark.may_block
async def test_the_last_step_of_a_child_that_is_gone_is_remembered() -> None:
    """While it lives the kernel tells it; afterwards only what was noted does."""
    process = spawn(WAITING, os.environ)
    incarnation = Incarnation(process, kill=lambda child: child.kill())
    assert incarnation.read_step()
    incarnation.last_step = "nvml GPU 3"
    discard(process)
    assert incarnation.read_step() == "nvml GPU 3"
