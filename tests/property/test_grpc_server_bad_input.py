"""Whatever bytes a caller sends, the server stands, leaks nothing, and serves the next one."""

import random
import struct

import pytest
from grpclib.const import Status
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.edge.kubelet.wire import frames, http2
from nodeagent.edge.kubelet.wire.http2 import ConnectionBroken, Request, ServerConnection

FIELDS = {":method": "POST", ":path": "/v1beta1.DevicePlugin/Allocate", "content-type": "application/grpc"}
CALL = b"".join(frames.encode_header(name.encode(), value.encode()) for name, value in FIELDS.items())

stream_ids = st.sampled_from([0, 1, 2, 3, 5, 7, 2**31 - 1])
blocks = st.one_of(st.just(CALL), st.binary(max_size=40), st.binary(max_size=40).map(lambda tail: CALL + tail))
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


def talk(server: ServerConnection, data: bytes, piece: int) -> list[http2.Event]:
    """Feed bytes in pieces and answer what is asked; whatever else is raised than a break is a defect."""
    heard: list[http2.Event] = []
    for at in range(0, len(data), piece):
        try:
            events = server.receive(data[at : at + piece])
        except ConnectionBroken:
            break
        for event in events:
            if isinstance(event, Request):
                server.sender.answer(event.stream_id, event.message)
        heard += events
    server.sender.take_output()
    return heard


@settings(max_examples=600)
@given(sequence=st.lists(likely, max_size=30), piece=st.integers(1, 400), greeted=st.booleans())
def test_likely_frames_in_any_order_are_survived(sequence: list[bytes], piece: int, *, greeted: bool) -> None:
    """Frames that are nearly right, in any order and any pieces, end in calls, refusals or one kind of error."""
    greeting = frames.PREFACE + frames.encode_settings({}) if greeted else b""
    heard = talk(ServerConnection(), greeting + b"".join(sequence), piece)
    assert len({event for event in heard if isinstance(event, Request)}) <= len(sequence)


@settings(max_examples=200)
@given(st.binary(max_size=400))
def test_noise_is_survived(noise: bytes) -> None:
    """Bytes of no meaning end in nothing or in one kind of error."""
    talk(ServerConnection(), noise, 100)
    talk(ServerConnection(), frames.PREFACE + frames.encode_settings({}) + noise, 100)


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


def test_ten_thousand_damaged_conversations_are_survived() -> None:
    """Cut, flipped, stretched and shortened calls never raise anything but a break, and leave no call open for ever."""
    dice = random.Random(20)
    body = struct.pack(">BI", 0, 12) + b"\x0a\x0a\x0a\x08GPU-0000"
    good = frames.PREFACE + frames.encode_settings({frames.SETTING_INITIAL_WINDOW_SIZE: 70_000})
    for stream_id in (1, 3, 5):
        good += frames.encode_frame(frames.HEADERS, frames.END_HEADERS, stream_id, CALL)
        good += frames.encode_frame(frames.DATA, frames.END_STREAM, stream_id, body)
        good += frames.encode_frame(frames.PING, 0, 0, bytes(8))
    intact = ServerConnection()
    assert len(talk(intact, good, len(good))) == 3
    assert len(intact.sender) == 0
    for _ in range(10_000):
        server = ServerConnection()
        talk(server, scramble(good, dice), dice.randrange(1, 300))
        assert len(server.sender) <= 4


@pytest.mark.parametrize("status", list(Status))
@given(text=st.text(st.characters(exclude_categories=()), max_size=300))
def test_any_text_makes_a_status(status: Status, text: str) -> None:
    """Every status with every text is one well-formed frame, or two with the text left out of a good one."""
    server = ServerConnection()
    server.receive(frames.PREFACE + frames.encode_settings({}))
    server.receive(frames.encode_frame(frames.HEADERS, frames.END_HEADERS, 1, CALL))
    server.sender.take_output()
    server.sender.finish(1, status, text)
    output = server.sender.take_output()
    size, kind, flags, stream_id = frames.parse_frame_header(output, 0)
    assert (size, kind, stream_id) == (len(output) - 9, frames.HEADERS, 1)
    assert flags & frames.END_STREAM
    assert size <= frames.DEFAULT_MAX_FRAME_BYTES
