"""Answers leave as far as the peer's windows allow, in order, once."""

import pytest
from grpclib.const import Status

from nodeagent.edge.kubelet.wire import frames
from nodeagent.edge.kubelet.wire.grpc_status import encode_message
from nodeagent.edge.kubelet.wire.sender import Sender, WindowOverflowed


def make_sender(*stream_ids: int) -> Sender:
    sender = Sender()
    for stream_id in stream_ids:
        sender.open(stream_id)
    return sender


def split(output: bytes) -> list[tuple[int, int, int, bytes]]:
    """Kind, flags, stream and payload of each frame."""
    found, position = [], 0
    while position < len(output):
        size, kind, flags, stream_id = frames.parse_frame_header(output, position)
        found.append((kind, flags, stream_id, output[position + 9 : position + 9 + size]))
        position += 9 + size
    return found


def take_data(sender: Sender, stream_id: int) -> bytes:
    output = split(sender.take_output())
    return b"".join(payload for kind, _, stream, payload in output if (kind, stream) == (frames.DATA, stream_id))


def test_small_answer_is_three_frames_at_once() -> None:
    """Headers, message and trailers of an answer that fits leave together, and the call is over."""
    sender = make_sender(1)
    sender.answer(1, b"hello")
    kinds = [(kind, flags & frames.END_STREAM) for kind, flags, _, _ in split(sender.take_output())]
    assert kinds == [(frames.HEADERS, 0), (frames.DATA, 0), (frames.HEADERS, frames.END_STREAM)]
    assert 1 not in sender


def test_large_answer_waits_for_the_window() -> None:
    """No more than the windows allow leaves; the rest and the trailers follow the peer's permission."""
    sender = make_sender(1)
    sender.answer(1, bytes(100_000))
    first = take_data(sender, 1)
    assert len(first) == frames.DEFAULT_WINDOW_BYTES
    assert not sender.is_drained(1)
    assert sender.grant(0, 50_000) == []
    assert sender.take_output() == b""
    assert sender.grant(1, 50_000) == [1]
    rest = split(sender.take_output())
    assert encode_message(bytes(100_000)) == first + b"".join(payload for kind, _, _, payload in rest if kind == 0)
    assert frames.END_STREAM & rest[-1][1]
    assert len(sender) == 0


def test_data_frames_keep_to_the_peers_size() -> None:
    """A message is cut to the frame size that the peer takes."""
    sender = make_sender(1)
    sender.answer(1, bytes(40_000))
    sizes = [len(payload) for kind, _, _, payload in split(sender.take_output()) if kind == frames.DATA]
    assert sizes == [16_384, 16_384, 40_005 - 2 * 16_384]
    sender.set_max_frame(1 << 20)
    sender.open(3)
    sender.grant(0, 100_000)
    sender.answer(3, bytes(40_000))
    assert len(split(sender.take_output())) == 3


def test_streamed_messages_share_one_head() -> None:
    """The first message of a stream brings the headers, later ones do not, the end brings the trailers."""
    sender = make_sender(1)
    sender.send(1, b"a")
    sender.send(1, b"b")
    sender.finish(1, Status.OK)
    kinds = [kind for kind, _, _, _ in split(sender.take_output())]
    assert kinds == [frames.HEADERS, frames.DATA, frames.DATA, frames.HEADERS]


def test_refusal_is_one_frame() -> None:
    """An error without an answer is a single frame with everything in it."""
    sender = make_sender(1)
    sender.finish(1, Status.NOT_FOUND, "gone")
    ((kind, flags, _, payload),) = split(sender.take_output())
    assert (kind, flags) == (frames.HEADERS, frames.END_HEADERS | frames.END_STREAM)
    assert b"gone" in payload


def test_answers_to_nobody_vanish() -> None:
    """What is said on a stream that the peer has given up is not sent, and is no error."""
    sender = make_sender(1)
    sender.drop(1)
    sender.drop(1)
    sender.answer(1, b"a")
    sender.send(1, b"a")
    sender.finish(1, Status.OK)
    assert sender.grant(1, 10) == []
    assert sender.take_output() == b""
    assert sender.is_drained(1)


def test_initial_window_changes_open_streams_too() -> None:
    """A new initial window moves the windows of streams that are open, below zero if need be."""
    sender = make_sender(1)
    sender.send(1, bytes(60_000))
    sender.take_output()
    sender.set_initial_window(10)
    sender.send(1, b"more")
    assert take_data(sender, 1) == b""
    assert sender.grant(1, 59_995) == []
    assert sender.set_initial_window(65_535) == [1]
    assert encode_message(b"more") == take_data(sender, 1)


def test_overflowing_windows_are_refused() -> None:
    """A window larger than HTTP/2 allows is a defect of the peer."""
    sender = make_sender(1)
    for act in (
        lambda: sender.grant(0, frames.LARGEST_WINDOW_BYTES),
        lambda: sender.grant(1, frames.LARGEST_WINDOW_BYTES),
        lambda: (sender.grant(1, 1000), sender.set_initial_window(frames.LARGEST_WINDOW_BYTES)),
    ):
        with pytest.raises(WindowOverflowed):
            act()
