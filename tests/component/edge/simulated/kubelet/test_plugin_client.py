"""What a plugin can do to the stand-in kubelet's line."""

from pathlib import Path

import anyio
import pytest

from nodeagent.edge.simulated.kubelet.plugin_client import PluginClient, PluginFailed


async def test_a_plugin_that_leaves_before_it_was_asked_has_failed(tmp_path: Path) -> None:
    """Killed between the connection and the first question: an answer to the kubelet's like any other."""
    path = tmp_path / "plugin.sock"
    async with await anyio.create_unix_listener(path):
        client = PluginClient("nvidia.com/gpu", path)
        try:
            protocol = await client._channel.__connect__()
            protocol.processor.connection.close()
            with pytest.raises(PluginFailed, match="failed to dial device plugin"):
                await client.read_options()
        finally:
            client.close()
