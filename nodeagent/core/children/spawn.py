"""Starting a child process with three pipes, possibly before there is an event loop.

Owns nothing: the process belongs to the caller. Refuses heavy imports, because the agent spawns the child before the
agent's own imports, so that the child starts up on another processor meanwhile.
"""

import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence

from nodeagent.core.children.frames import PARENT_VARIABLE

_GONE_SECONDS = 0.25
"""How long to wait for the end of a killed process."""


def spawn(argv: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a child; the parent's pid is added to `env`.

    Raises:
        OSError: The child cannot be started.
    """
    # About a millisecond: vfork, exec, and the wait for exec to succeed.
    # A session of its own, so that Ctrl-C in a terminal reaches only the agent.
    return subprocess.Popen(  # noqa: S603  # the program is the agent's choice, never outside input
        argv,
        env={**env, PARENT_VARIABLE: str(os.getpid())},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        close_fds=True,
        start_new_session=True,
    )


def discard(process: subprocess.Popen[bytes]) -> None:
    """Kill a process without an owner; the process is gone afterwards, unless asleep in a driver."""
    # Kill first: at the end of input a process may end by itself.
    process.kill()
    for file in (process.stdin, process.stdout, process.stderr):
        if file is not None:
            file.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GONE_SECONDS)
