"""Our server before h2spec, the public conformance suite for HTTP/2, beside a server of nothing but grpclib."""

import asyncio
import re
import socket
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskGroup
from grpclib.server import Server, Stream

from nodeagent.edge.grpc.server import open_grpc_server
from nodeagent.edge.grpc.serving import ServerConnection
from nodeagent.edge.kubelet.plugin_server import PluginServer
from nodeagent.edge.kubelet.proto import device_plugin_pb2 as wire
from nodeagent.edge.kubelet.proto.device_plugin_grpc import RegistrationBase
from tests.conformance.__main__ import MODULE
from tests.fakes.device_plugin import FakeDevicePlugin
from tests.integration.cluster.making.build import find_binaries, read_plan
from tests.support.wire.kubelets import no_crash

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

Verdicts = dict[str, str]
# It counts on calls that stay open. Both servers refuse them at once, so that too many are open only when all of them
# come in one read, which is up to the clock; tests/component/edge/grpc/test_attacks.py has the bound.
UP_TO_THE_CLOCK = "http2/5.1.2 Sends HEADERS frames that causes their advertised concurrent stream limit to be exceeded"
NO_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Plain(RegistrationBase):
    """What grpclib does by itself."""

    async def Register(self, stream: Stream[wire.RegisterRequest, wire.Empty]) -> None:  # noqa: N802 - gRPC's own name
        assert await stream.recv_message() is not None
        await stream.send_message(wire.Empty())


@asynccontextmanager
async def listening(protocol: Callable[[], asyncio.BaseProtocol]) -> AsyncIterator[int]:
    """The port of a loopback address where h2spec, which knows no unix sockets, finds this protocol.

    A server that closes while something is on its way to it resets the connection. h2spec takes that for a fault where
    it takes one that is closed for an answer, and which of both it sees is up to the clock: here it sees them closed.
    """
    loop = asyncio.get_running_loop()
    server = await loop.create_server(protocol, "127.0.0.1", 0)
    with socket.create_server(("127.0.0.1", 0)) as door:
        door.setblocking(False)
        async with server, anyio.create_task_group() as group:
            group.start_soon(let_in, door, server.sockets[0].getsockname(), group)
            yield door.getsockname()[1]
            group.cancel_scope.cancel()


async def let_in(door: socket.socket, address: tuple[str, int], group: TaskGroup) -> None:
    """Whoever comes to the door is connected to the address."""
    while True:
        guest, _ = await asyncio.get_running_loop().sock_accept(door)
        group.start_soon(join, guest, address)


async def join(guest: socket.socket, address: tuple[str, int]) -> None:
    """One connection, until both sides have closed theirs."""
    with guest, socket.create_connection(address) as host:
        host.setblocking(False)
        async with anyio.create_task_group() as group:
            group.start_soon(carry, guest, host)
            group.start_soon(carry, host, guest)


async def carry(source: socket.socket, target: socket.socket) -> None:
    """What one side sends, to the other; one that has closed is told no more, but the sender is heard to its end."""
    loop = asyncio.get_running_loop()
    hears = True
    with suppress(ConnectionError):
        while piece := await loop.sock_recv(source, 65536):
            try:
                if hears:
                    await loop.sock_sendall(target, piece)
            except ConnectionError:
                hears = False
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


async def judge(port: int, report: Path) -> Verdicts:
    """What h2spec says of each case: passed, skipped or failed."""
    binaries = find_binaries(read_plan(MODULE))
    assert binaries is not None, "build it first: python -m tests.conformance"
    words = [str(binaries / "h2spec"), "-h", "127.0.0.1", "-p", str(port), "-o", "1", "-j", str(report)]
    await anyio.run_process(words, check=False)
    verdicts = {}
    # It quotes what it received, and bytes of a frame need not be characters that XML knows.
    text = (await anyio.Path(report).read_bytes()).decode(errors="replace")
    for case in ET.fromstring(NO_XML.sub("?", text)).iter("testcase"):
        kinds = [child.tag for child in case if child.tag in {"failure", "error", "skipped"}]
        verdicts[f"{case.get('package')} {case.get('classname')}"] = kinds[0] if kinds else "passed"
    return verdicts


async def test_we_fail_nothing_that_grpclib_passes(short_dir: Path) -> None:
    """The house about grpclib takes nothing away from what its HTTP/2 can do."""
    methods = PluginServer(FakeDevicePlugin(), no_crash, lambda _: None).methods()
    plain = Server([Plain()])
    async with (
        open_grpc_server(short_dir / "p.sock", methods, no_crash) as server,
        listening(lambda: ServerConnection(server)) as our_port,
        listening(plain._protocol_factory) as plain_port,
    ):
        ours = await judge(our_port, short_dir / "ours.xml")
        # What grpclib stumbles over ends its connection, and is told to the loop.
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        theirs = await judge(plain_port, short_dir / "plain.xml")
    assert len(ours) == len(theirs) > 140
    del ours[UP_TO_THE_CLOCK], theirs[UP_TO_THE_CLOCK]
    taken_away = {case for case, verdict in theirs.items() if verdict == "passed" != ours[case]}
    assert taken_away == set(), f"ours {Counter(ours.values())}, grpclib's {Counter(theirs.values())}"
