"""What a plugin can do to the stand-in kubelet's line."""

import asyncio
from pathlib import Path

import anyio
import anyio.abc
import pytest
from grpclib.protocol import H2Protocol

from nodeagent.edge.simulated.kubelet.plugin_client import PluginClient, PluginFailed


async def test_a_plugin_that_leaves_before_it_was_asked_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the connection and the first question: an answer to the kubelet's like any other."""
    path = tmp_path / "plugin.sock"
    async with await anyio.create_unix_listener(path):
        client = PluginClient("nvidia.com/gpu", path)
        connect = client._channel.__connect__

        async def connect_to_one_that_leaves() -> H2Protocol:
            protocol = await connect()
            protocol.processor.connection.close()
            return protocol

        monkeypatch.setattr(client._channel, "__connect__", connect_to_one_that_leaves)
        try:
            with pytest.raises(PluginFailed, match="failed to dial device plugin"):
                await client.read_options()
        finally:
            client.close()


async def test_a_plugin_that_leaves_in_the_middle_of_a_question_leaves_whoever_asked_as_they_were(
    tmp_path: Path,
) -> None:
    """They are not cancelled by it, and a scope that they are in can still be left."""
    path = tmp_path / "plugin.sock"
    asked = anyio.Event()

    async def hang_up(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            asked.set()

    async with await anyio.create_unix_listener(path) as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, hang_up)
        client = PluginClient("nvidia.com/gpu", path)
        try:
            with pytest.raises(PluginFailed, match="Unavailable"):
                await client.allocate(["GPU-1"])
        finally:
            client.close()
        assert asked.is_set()
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        tasks.cancel_scope.cancel()
