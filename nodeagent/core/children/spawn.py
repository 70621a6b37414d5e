"""Starting a child process with three pipes, which belongs to the caller."""

import os
import subprocess
from collections.abc import Mapping, Sequence

from nodeagent.core.children.frames import PARENT_VARIABLE


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
