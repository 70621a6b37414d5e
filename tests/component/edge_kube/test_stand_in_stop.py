"""The stand-in API server goes away without a trace, whoever was about to be served."""

import asyncio
import gc
import socket
from typing import Any

import anyio.lowlevel
import pytest

from tests.fakes.fleet import FakeFleet


@pytest.mark.parametrize("turns", range(6))
async def test_a_connection_in_the_moment_of_closing_is_closed_too(turns: int) -> None:
    """In whichever turn of the loop that is: it waits, is accepted, has a transport, or is known to the server."""
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    server = FakeFleet()
    await server.start()
    with socket.create_connection(("127.0.0.1", server.port)):
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        await server.stop()
        gc.collect()  # a transport that nobody has closed says so, and fails the test
    assert problems == []
