"""What a child process does first: make sure that it never outlives the agent, and keep its answers to itself.

Runs in the child. The parent's side is `child_process.py`; both speak `frames.py`.
Setting the death signal here rather than between fork and exec keeps the parent free of code that must not run there.
Refuses everything else: no loop, no log, no third party.
"""

import ctypes
import os

from nodeagent.core.children.frames import PARENT_VARIABLE

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_LIBC = ctypes.CDLL(None)
_SIGKILL = 9
"""Written out: the module `signal` would bring `enum` along, which costs a small process 0.3 MB."""


def die_with_parent() -> None:
    """Have the kernel kill this process when the agent ends, and end now if it already has.

    The signal comes when the thread that spawned this process ends; the agent spawns from its main thread only.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_PDEATHSIG) failed: {os.strerror(number)}")
    if os.getppid() != int(os.environ.get(PARENT_VARIABLE, os.getppid())):
        os._exit(1)


def announce_step(name: str) -> None:
    """Let parent and people see what is being done, also when it never ends: the process is called so (`ps -o comm`).

    For the main thread; the kernel keeps the first 15 bytes.
    """
    _LIBC.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def claim_answers() -> int:
    """The descriptor for frames to the parent; from now on stray prints go to the log instead of into the frames."""
    answers = os.dup(1)
    os.dup2(2, 1)
    return answers
