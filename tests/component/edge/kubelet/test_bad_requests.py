"""Requests that are well framed and badly filled: each gets one answer, and the next caller is served."""

import random
import socket
from collections import Counter
from pathlib import Path

import anyio
import pytest
from grpclib.const import Status
from hpack import Decoder

from nodeagent.edge.kubelet.plugin_server import PluginServer
from nodeagent.edge.kubelet.proto import device_plugin_pb2 as wire
from nodeagent.edge.kubelet.wire import frames
from nodeagent.edge.kubelet.wire.grpc_status import encode_message
from nodeagent.edge.kubelet.wire.server import open_grpc_server
from tests.fakes.device_plugin import FakeDevicePlugin
from tests.support.kubelets import no_crash

METHODS = ("Allocate", "GetPreferredAllocation", "PreStartContainer", "GetDevicePluginOptions", "Nothing")
GOOD = {
    "Allocate": wire.AllocateRequest(container_requests=[wire.ContainerAllocateRequest(devices_ids=["GPU-0001"])]),
    "GetPreferredAllocation": wire.PreferredAllocationRequest(
        container_requests=[
            wire.ContainerPreferredAllocationRequest(available_deviceIDs=["GPU-0001", "GPU-0002"], allocation_size=1)
        ]
    ),
    "PreStartContainer": wire.PreStartContainerRequest(devices_ids=["GPU-0001"]),
}


def make_request(method: str, dice: random.Random) -> bytes:
    """A good message, a damaged one, or noise."""
    good = GOOD[method].SerializeToString() if method in GOOD else b""
    match dice.randrange(4):
        case 0:
            return good
        case 1:
            return dice.randbytes(dice.randrange(40))
        case 2:
            return good[: dice.randrange(len(good) + 1)]
        case _:
            return bytes(byte ^ (1 << dice.randrange(8)) if dice.random() < 0.1 else byte for byte in good)


def render_call(stream_id: int, method: str, message: bytes) -> bytes:
    fields = {":method": "POST", ":path": f"/v1beta1.DevicePlugin/{method}", "content-type": "application/grpc"}
    block = b"".join(frames.encode_header(name.encode(), value.encode()) for name, value in fields.items())
    return frames.encode_frame(frames.HEADERS, frames.END_HEADERS, stream_id, block) + frames.encode_frame(
        frames.DATA, frames.END_STREAM, stream_id, encode_message(message)
    )


def read_statuses(received: bytes) -> dict[int, Status]:
    """The status of each stream that has ended."""
    found, position, decoder = {}, 0, Decoder()
    while position + 9 <= len(received):
        size, kind, flags, stream_id = frames.parse_frame_header(received, position)
        if position + 9 + size > len(received):
            break
        if kind == frames.HEADERS and flags & frames.END_STREAM:
            fields = dict(decoder.decode(received[position + 9 : position + 9 + size], raw=True))
            found[stream_id] = Status(int(fields[b"grpc-status"]))
        position += 9 + size
    return found


@pytest.mark.slow
async def test_every_bad_request_gets_an_answer(short_dir: Path) -> None:
    """Of 10,000 requests, good, damaged and nonsense, each ends with a status that fits, and nothing crashes."""
    dice = random.Random(5)
    plugin = FakeDevicePlugin()
    path = short_dir / "p.sock"
    methods = PluginServer(plugin, no_crash, lambda _: None).methods()
    async with open_grpc_server(path, methods, no_crash) as server:
        with socket.socket(socket.AF_UNIX) as caller:
            caller.setblocking(False)
            caller.connect(str(path))
            greeting = frames.PREFACE + frames.encode_settings({frames.SETTING_INITIAL_WINDOW_SIZE: 2**30})
            caller.send(greeting + frames.encode_window_update(0, 2**30))
            statuses: dict[int, Status] = {}
            received = b""
            for stream_id in range(1, 20_001, 2):
                method = dice.choice(METHODS)
                caller.send(render_call(stream_id, method, make_request(method, dice)))
                with anyio.fail_after(20):
                    while stream_id not in statuses:
                        await anyio.wait_readable(caller)
                        received += caller.recv(1 << 16)
                        statuses |= read_statuses(received)
                received = received[-200:] if stream_id not in statuses else b""
        assert server.connection_count <= 1
    counts = Counter(statuses.values())
    assert counts.keys() <= {Status.OK, Status.INVALID_ARGUMENT, Status.NOT_FOUND, Status.UNIMPLEMENTED}
    assert min(counts.values()) > 50
