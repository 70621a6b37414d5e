"""A connection between the socket's acceptance and its transport."""

import asyncio

import pytest
from anyio import create_task_group

from nodeagent.edge.kubelet.wire.connection import Connection
from tests.support.kubelets import no_crash


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.aborted, self.written = False, b""

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data


@pytest.mark.parametrize("leave", [Connection.close, Connection.abort, None])
async def test_caller_accepted_at_the_very_end_is_turned_away(leave: object) -> None:
    """A server that stops before the transport is there hangs up as soon as it is; otherwise it greets."""
    async with create_task_group() as tasks:
        connection, transport = Connection({}, tasks, no_crash, lambda _: None), FakeTransport()
        if callable(leave):
            leave(connection)
        connection.connection_made(transport)
    assert transport.aborted == bool(leave)
    assert bool(transport.written) != bool(leave)
