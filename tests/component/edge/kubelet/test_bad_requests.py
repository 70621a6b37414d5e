"""Requests that are well framed and badly filled: each gets one answer, and the next caller is served."""

import random
import socket
from collections import Counter
from pathlib import Path

import anyio
import pytest
from grpclib.const import Status
from hpack import Decoder

from nodeagent.edge.grpc.calls import encode_message
from nodeagent.edge.grpc.server import open_grpc_server
from nodeagent.edge.kubelet.plugin_server import PluginServer
from nodeagent.edge.kubelet.proto import device_plugin_pb2 as wire
from tests.fakes.device_plugin import FakeDevicePlugin
from tests.support.wire import http2_frames as frames
from tests.support.wire.kubelets import no_crash
from tests.support.wire.raw_caller import raw_call

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


class Answers:
    """What a server says, as it comes."""

    def __init__(self) -> None:
        self._decoder, self._unread = Decoder(), b""
        self.statuses: dict[int, Status] = {}

    def read(self, received: bytes) -> None:
        self._unread += received
        while len(self._unread) >= 9:
            size, kind, flags, stream_id = frames.parse_frame_header(self._unread, 0)
            if len(self._unread) < 9 + size:
                return
            payload, self._unread = self._unread[9 : 9 + size], self._unread[9 + size :]
            if kind == frames.HEADERS:
                fields = dict(self._decoder.decode(payload, raw=True))
                if flags & frames.END_STREAM:
                    self.statuses[stream_id] = Status(int(fields[b"grpc-status"]))


@pytest.mark.nightly
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
            answers = Answers()
            for stream_id in range(1, 20_001, 2):
                method = dice.choice(METHODS)
                caller.send(
                    raw_call(f"/v1beta1.DevicePlugin/{method}", encode_message(make_request(method, dice)), stream_id)
                )
                with anyio.fail_after(20):
                    while stream_id not in answers.statuses:
                        await anyio.wait_readable(caller)
                        answers.read(caller.recv(1 << 16))
        assert server.connection_count <= 1
    counts = Counter(answers.statuses.values())
    assert counts.keys() <= {Status.OK, Status.INVALID_ARGUMENT, Status.NOT_FOUND, Status.UNIMPLEMENTED}
    assert min(counts.values()) > 50
