"""One request to a child process started for the answer alone: started, asked, killed and reaped in any case.

Owns the process and its descendants, a session of processes killed together. Lines on the child's standard error go to
the log. Refuses to know the meaning of request and answer.
"""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

import anyio

from nodeagent.core.children.frames import encode_frame
from nodeagent.core.children.incarnation import Incarnation
from nodeagent.core.children.spawn import spawn
from nodeagent.core.errors import ChildDied, ChildStuck, ChildUnavailable
from nodeagent.core.log.lines import get_logger

KILL_SECONDS = 1.0
"""How long a killed child may take to be gone before it is left behind."""
_REQUEST = 1


async def ask_once(
    argv: Sequence[str],
    question: bytes,
    *,
    env: Mapping[str, str],
    name: str,
    timeout_seconds: float,
    limit_bytes: int,
) -> bytes:
    """The child's answer, in the protocol of a `ChildProcess`; the child is gone afterwards.

    Raises:
        ChildUnavailable: The child could not be started.
        ChildStuck: No answer in time.
        ChildDied: The child ended, or sent no valid frame, before the answer.
        FrameTooLarge: The request is over the limit; no child was started.
    """
    frame = encode_frame(_REQUEST, question, limit_bytes=limit_bytes)
    log = get_logger(component=name)
    try:
        process = spawn(argv, env)
    except OSError as error:
        raise ChildUnavailable(name, f"it could not be started ({error})") from error
    child = Incarnation(process, kill=_kill_session)
    answer: bytes | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(
            child.live,
            lambda _: None,
            lambda line: log.info("child_said", pid=child.pid, line=line),
            KILL_SECONDS,
            limit_bytes,
            name=f"{name} (pid {child.pid})",
        )
        try:
            with anyio.move_on_after(timeout_seconds) as waiting:
                answer = await child.ask(_REQUEST, frame)
        finally:
            # No more output is due from the child, and the parent cleans up anyway.
            child.give_up(is_stuck=True)
    if child.is_left_behind():
        log.error("child_left_behind", pid=child.pid)
    if answer is not None:
        return answer
    if waiting.cancelled_caught:
        raise ChildStuck(name, child.pid, timeout_seconds)
    raise ChildDied(name, child.pid, child.describe_end())


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    """Kill the child and its descendants; a reaped child's pid may belong to another process by now."""
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
