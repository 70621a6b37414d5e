"""Whatever bytes a caller sends, the server stands, leaks nothing, and serves the next one."""

import asyncio
import random
import re
import struct
from collections.abc import Coroutine
from typing import Any

import pytest
from google.protobuf.message import Message
from grpclib.const import Status
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.edge.grpc.calls import (
    LONGEST_STATUS_TEXT,
    CrashReporter,
    Methods,
    Replies,
    Streaming,
    Unary,
    render_trailers,
)
from nodeagent.edge.grpc.serving import ServerConnection
from nodeagent.edge.kubelet.proto import device_plugin_pb2 as wire
from tests.support.examples import examples
from tests.support.wire import http2_frames as frames
from tests.support.wire.kubelets import no_crash
from tests.support.wire.raw_caller import ALLOCATE, GREETING, LIST_AND_WATCH, head_block, raw_call

CALLS = st.sampled_from([head_block(ALLOCATE), head_block(LIST_AND_WATCH)])

stream_ids = st.sampled_from([0, 1, 2, 3, 5, 7, 2**31 - 1])
blocks = st.one_of(
    CALLS, st.binary(max_size=40), st.builds(lambda call, tail: call + tail, CALLS, st.binary(max_size=40))
)
bodies = st.one_of(
    st.binary(max_size=60),
    st.builds(lambda size, body: struct.pack(">BI", 0, size) + body, st.integers(0, 2**32 - 1), st.binary(max_size=60)),
    st.binary(max_size=60).map(lambda body: struct.pack(">BI", 0, len(body)) + body),
)
likely = st.one_of(
    st.builds(frames.encode_frame, st.just(frames.HEADERS), st.integers(0, 255), stream_ids, blocks),
    st.builds(frames.encode_frame, st.just(frames.DATA), st.integers(0, 255), stream_ids, bodies),
    st.builds(frames.encode_frame, st.integers(0, 12), st.integers(0, 255), stream_ids, st.binary(max_size=20)),
    st.builds(frames.encode_reset, stream_ids, st.integers(0, 20)),
    st.builds(frames.encode_window_update, stream_ids, st.integers(0, 2**31 - 1)),
)


class Wire(asyncio.Transport):
    """A connection's other end: keeps what is said to it until it is hung up on."""

    def __init__(self) -> None:
        super().__init__()
        self.closed, self.heard = False, bytearray()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.heard += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close


class Host:
    """A server that answers an Allocate with nothing, and follows lists for ever."""

    has_room = True

    def __init__(self) -> None:
        self.methods: Methods = {
            ALLOCATE: Unary(wire.AllocateRequest, self._allocate),
            LIST_AND_WATCH: Streaming(wire.Empty, self._follow),
        }
        self.report_crash: CrashReporter = no_crash
        self.tasks: set[asyncio.Task[None]] = set()
        self.asked = 0

    async def _allocate(self, _: Message) -> Message:
        self.asked += 1
        return wire.AllocateResponse()

    async def _follow(self, _: Message, replies: Replies) -> None:
        await replies.send(wire.ListAndWatchResponse())
        await replies.wait_closed()

    def begin(self, work: Coroutine[Any, Any, None], *, is_unary: bool) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        return task

    def arrive(self, line: ServerConnection) -> bool:
        return True

    def leave(self, line: ServerConnection) -> None:
        pass


async def talk(data: bytes, piece: int) -> Host:
    """Feed bytes in pieces until it is hung up; nothing may be raised, and nothing may be left in the end."""
    host, transport = Host(), Wire()
    line = ServerConnection(host)
    line.connection_made(transport)
    for at in range(0, len(data), piece):
        if transport.closed:
            break
        part = data[at : at + piece]
        memoryview(line.get_buffer(-1))[: len(part)] = part
        line.buffer_updated(len(part))
        await asyncio.sleep(0)
    for _ in range(3):
        await asyncio.sleep(0)
    line.connection_lost(None)
    ended = await asyncio.gather(*host.tasks, return_exceptions=True)
    assert [one for one in ended if one is not None and not isinstance(one, asyncio.CancelledError)] == []
    assert line.caller.is_idle
    return host


@pytest.mark.long
@settings(max_examples=examples(600))
@given(sequence=st.lists(likely, max_size=30), piece=st.integers(1, 400), greeted=st.booleans())
def test_likely_frames_in_any_order_are_survived(sequence: list[bytes], piece: int, *, greeted: bool) -> None:
    """Frames that are nearly right, in any order and any pieces, end in calls, refusals or the connection's end."""
    host = asyncio.run(talk((GREETING if greeted else b"") + b"".join(sequence), piece))
    assert host.asked <= len(sequence)


@settings(max_examples=examples(200))
@given(st.binary(max_size=400))
def test_noise_is_survived(noise: bytes) -> None:
    """Bytes of no meaning end in nothing or in the connection's end."""
    asyncio.run(talk(noise, 100))
    asyncio.run(talk(GREETING + noise, 100))


def scramble(good: bytes, dice: random.Random) -> bytes:
    """A good conversation with something wrong in it."""
    data = bytearray(good)
    match dice.randrange(4):
        case 0:
            del data[dice.randrange(len(data)) :]
        case 1:
            for _ in range(dice.randrange(1, 4)):
                data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        case 2:
            at = dice.randrange(len(data))
            data[at:at] = dice.randbytes(dice.randrange(1, 20))
        case _:
            at = dice.randrange(len(data))
            del data[at : at + dice.randrange(1, 20)]
    return bytes(data)


@pytest.mark.long
def test_damaged_conversations_are_survived() -> None:
    """Cut, flipped, stretched and shortened calls raise nothing and leave nothing."""
    dice = random.Random(20)
    body = struct.pack(">BI", 0, 12) + b"\x0a\x0a\x0a\x08GPU-0000"
    good = GREETING + b"".join(
        raw_call(path, message, stream) + frames.encode_frame(frames.PING, 0, 0, bytes(8))
        for stream, path, message in [(1, ALLOCATE, body), (3, LIST_AND_WATCH, bytes(5)), (5, ALLOCATE, body)]
    )

    async def converse() -> None:
        assert (await talk(good, len(good))).asked == 2
        for _ in range(examples(10_000)):
            await talk(scramble(good, dice), dice.randrange(1, 300))

    asyncio.run(converse())


@pytest.mark.parametrize("status", list(Status))
@given(text=st.text(st.characters(exclude_categories=()), max_size=300))
def test_any_text_makes_a_status(status: Status, text: str) -> None:
    """Every status with every text is a list of fields that HTTP/2 may carry."""
    for name, value in render_trailers(status, text):
        assert re.fullmatch(rb"[a-z-]+", name)
        assert re.fullmatch(rb"[\x20-\x7e]*", value)
        assert len(value) <= 9 * LONGEST_STATUS_TEXT
