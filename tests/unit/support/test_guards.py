import asyncio
import os
import subprocess
import threading
from types import ModuleType
from typing import Any

import pytest

import nodeagent
from tests.support.guards.blocking import ALLOWED, LoopBlockedError, forbid_blocking
from tests.support.guards.leaks import LeakError, Leaks, forbid_leaked_tasks


def library_code(source: str, name: str = "core/somewhere.py") -> Any:
    """A function `call` that looks as if it stood in the package."""
    module = ModuleType("somewhere")
    filename = nodeagent.__file__.removesuffix("__init__.py") + name
    exec(compile(source, filename, "exec"), module.__dict__)  # the only way to be in a file that does not exist
    return module.call


@pytest.mark.parametrize(
    "source",
    [
        "import time\ndef call(): time.sleep(0)",
        "def call(): open('/dev/null').close()",
        "import pathlib\ndef call(): pathlib.Path('/dev/null').read_text()",
        "import socket\ndef call(): socket.getaddrinfo('127.0.0.1', 1)",
    ],
)
async def test_library_code_that_blocks_the_loop_is_caught(source: str) -> None:
    """Directly or through the standard library, the package's own line is named."""
    with pytest.raises(LoopBlockedError, match=r"called by core/somewhere\.py:\d call"):
        library_code(source)()


async def test_threads_and_listed_functions_may_block() -> None:
    """The guard is for the package on the loop, and only for what is not listed."""
    blocking = library_code("import time\ndef call(): time.sleep(0)")
    await asyncio.to_thread(blocking)
    (path, function), *_ = ALLOWED
    library_code(f"def {function}(): open('/dev/null').close()\ncall = {function}", path)()


def test_blocking_outside_a_loop_is_fine() -> None:
    """Start-up code before the loop may read files."""
    with forbid_blocking():
        library_code("def call(): open('/dev/null').close()")()


async def test_leaked_task_fails_its_test() -> None:
    """A task that outlives the coroutine of its test is named."""
    leaked: list[asyncio.Task[None]] = []

    @forbid_leaked_tasks
    async def leaky() -> None:
        leaked.append(asyncio.create_task(asyncio.sleep(3600), name="forgotten"))

    with pytest.raises(LeakError, match="tasks forgotten"):
        await leaky()
    leaked[0].cancel()
    await asyncio.sleep(0)


def test_leaked_descriptor_thread_and_child_fail_their_test() -> None:
    """What is still there after a moment of patience is named; what is gone is forgiven."""
    leaks = Leaks(patience_seconds=0.05)
    leaks.check()
    release = threading.Event()
    thread = threading.Thread(target=release.wait, name="forgotten")
    thread.start()
    descriptor = os.open("/dev/null", os.O_RDONLY)
    with subprocess.Popen(["sleep", "60"]) as child:
        left = rf"thread 'forgotten', descriptor \d+ of /dev/null, child process {child.pid}"
        with pytest.raises(LeakError, match=left):
            leaks.check()
        child.kill()
    release.set()
    thread.join()
    os.close(descriptor)
    leaks.check()


def test_environment_of_the_person_does_not_come_in() -> None:
    """Whoever runs the tests may have the agent configured."""
    assert [name for name in os.environ if name.startswith(("NODEAGENT_", "NVIDIA_"))] == []
    assert "NO_COLOR" not in os.environ
