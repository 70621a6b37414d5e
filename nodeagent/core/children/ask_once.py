"""One question to a child process that lives for its answer: started, asked, killed and reaped, whatever happens.

Owns the process and all that it started, which are a session of their own and are killed together. What the child says
on its standard error goes to the log. Refuses to know what question and answer mean.
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
    """The child's answer, which it gives as the child of a `ChildProcess` does; the child is gone afterwards.

    Raises:
        ChildUnavailable: it could not be started.
        ChildStuck: no answer in time.
        ChildDied: it ended, or sent what is no frame within the limit, before it answered.
        FrameTooLarge: the question is over the limit; nothing was started.
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
            # It has nothing more to say, and what it would tidy up at its end is its parent's anyway.
            child.give_up(is_stuck=True)
    if child.is_left_behind():
        log.error("child_left_behind", pid=child.pid)
    if answer is not None:
        return answer
    if waiting.cancelled_caught:
        raise ChildStuck(name, child.pid, timeout_seconds)
    raise ChildDied(name, child.pid, child.describe_end())


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    """Kill it and what it started; the number of one that was reaped may be another's by now."""
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
