"""Starting a child process with three pipes: the one step that may happen before there is an event loop.

Owns nothing: the process belongs to whoever asked. Refuses heavy imports, because the agent takes this step before its
own, so that the child starts up on another processor meanwhile.
"""

import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence

from nodeagent.core.children.frames import PARENT_VARIABLE

_GONE_SECONDS = 0.25
"""How long the end of a killed process is waited for."""


def spawn(argv: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start it; what it has to know of its parent is added to `env`.

    Raises:
        OSError: it cannot be started.
    """
    # About a millisecond: vfork, exec, and the wait for exec to succeed.
    # A session of its own, so that Ctrl-C in a terminal reaches only the agent.
    return subprocess.Popen(  # noqa: S603  # the program is the agent's own choice, never outside input
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
    """End a process that nobody has come to own; it is gone afterwards, unless it sleeps in a driver."""
    # First: one that hears the end of its input would end by itself, now and then.
    process.kill()
    for file in (process.stdin, process.stdout, process.stderr):
        if file is not None:
            file.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GONE_SECONDS)
