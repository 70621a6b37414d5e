"""First steps of a child process: a death signal, so as never to outlive the agent, and a clean pipe for answers.

Runs in the child. The parent's side is `child_process.py`; both speak `frames.py`.
Setting the death signal here rather than between fork and exec keeps the parent free of code unsafe after a fork.
Refuses all else: no loop, no log, no third party.
"""

import ctypes
import os

from nodeagent.core.children.frames import PARENT_VARIABLE

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_LIBC = ctypes.CDLL(None)
_SIGKILL = 9
"""Written out: importing `signal` would import `enum` too, at 0.3 MB in a small process."""


def die_with_parent() -> None:
    """Have the kernel kill the process when the agent ends; exit now if the agent has ended already.

    The signal comes at the end of the spawning thread; the agent spawns from the main thread only.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_PDEATHSIG) failed: {os.strerror(number)}")
    if os.getppid() != int(os.environ.get(PARENT_VARIABLE, os.getppid())):
        os._exit(1)


def announce_step(name: str) -> None:
    """Show the present step to parent and people, also of a hanging call: as the name of the process (`ps -o comm`).

    For the main thread; the kernel keeps the first 15 bytes.
    """
    _LIBC.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def claim_answers() -> int:
    """The descriptor for frames to the parent; stray prints go to the log from now on, not into the frames."""
    answers = os.dup(1)
    os.dup2(2, 1)
    return answers
