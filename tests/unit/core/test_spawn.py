"""The step of a child process, also after its end."""

import os
import sys

import pytest

from nodeagent.core.children.incarnation import Incarnation
from nodeagent.core.children.spawn import spawn

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
