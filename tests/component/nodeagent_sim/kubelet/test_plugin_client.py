"""What a plugin can do to the stand-in kubelet's line."""

import asyncio
from pathlib import Path
from random import Random

import anyio
import anyio.abc
import pytest
from grpclib.protocol import H2Protocol

from nodeagent_sim.kubelet.device_manager import DeviceManager
from nodeagent_sim.kubelet.plugin_client import PluginClient, PluginFailed
from nodeagent_sim.kubelet.registration import PluginRegistry


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


@pytest.mark.parametrize("is_connecting", [True, False])
async def test_a_line_that_was_hung_up_stays_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_connecting: bool
) -> None:
    """Asked afterwards, and while it is being connected: grpclib would connect anew, and nobody would close that."""
    path = tmp_path / "plugin.sock"
    client = PluginClient("nvidia.com/gpu", path)
    connect = client._channel._create_connection
    connections = []

    async def hang_up_meanwhile() -> H2Protocol:
        connections.append(await connect())
        client.close()
        return connections[-1]

    monkeypatch.setattr(client._channel, "_create_connection", hang_up_meanwhile)
    if not is_connecting:
        client.close()
    async with await anyio.create_unix_listener(path):
        with pytest.raises(PluginFailed, match="this end has hung up"):
            await client.read_options()
    assert [each.connection.is_closing() for each in connections] == [True] * is_connecting


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


async def test_a_registration_that_is_given_up_hangs_up(tmp_path: Path) -> None:
    """A kubelet that ends in the middle of one leaves no connection behind."""
    path, dialled = tmp_path / "plugin.sock", list[PluginClient]()

    def dial(resource: str, socket: Path) -> PluginClient:
        dialled.append(PluginClient(resource, socket))
        return dialled[-1]

    async with await anyio.create_unix_listener(path) as listener, anyio.create_task_group() as tasks:
        manager = DeviceManager(Random(1), lambda: 0.0)
        registry = PluginRegistry(manager, tmp_path, tasks, changed=lambda: None, wanted=lambda: True, dial=dial)
        tasks.start_soon(registry.connect, "nvidia.com/gpu", path)
        async with await listener.accept() as line:
            await line.receive()
            tasks.cancel_scope.cancel()
    (client,) = dialled
    assert not client._channel._connected
