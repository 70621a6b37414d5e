import os
import struct

import pytest

from nodeagent.core.children.frames import FrameDecoder, encode_frame, read_frames, write_frame
from nodeagent.core.errors import FrameCutShort, FrameTooLarge


def test_frame_is_length_request_payload() -> None:
    """The wire form is fixed: two big-endian words, then the payload."""
    assert encode_frame(7, b"abc") == b"\0\0\0\3\0\0\0\7abc"


@pytest.mark.parametrize("piece", [1, 2, 7, 8, 9, 1000])
def test_frames_come_out_whole_however_they_are_cut(piece: int) -> None:
    """Pieces of any size give the same frames."""
    frames = [(1, b""), (2, b"x" * 20), (0, b"event")]
    stream = b"".join(encode_frame(*frame) for frame in frames)
    decoder = FrameDecoder()
    pieces = (stream[start : start + piece] for start in range(0, len(stream), piece))
    assert [frame for data in pieces for frame in decoder.feed(data)] == frames
    decoder.end()


def test_frame_over_the_limit_is_refused_by_both_sides() -> None:
    """A sender never makes one; a reader gives up at the header, before the payload."""
    with pytest.raises(FrameTooLarge, match="11 bytes is over the limit of 10"):
        encode_frame(1, b"x" * 11, limit_bytes=10)
    with pytest.raises(FrameTooLarge):
        list(FrameDecoder(limit_bytes=10).feed(struct.pack("!II", 11, 1)))
    assert list(FrameDecoder(limit_bytes=10).feed(encode_frame(1, b"x" * 10))) == [(1, b"x" * 10)]


@pytest.mark.parametrize(("kept", "missing"), [(3, 5), (8, 4), (10, 2)])
def test_end_inside_a_frame_is_told(kept: int, missing: int) -> None:
    """A cut stream says at least how much is missing."""
    decoder = FrameDecoder()
    assert list(decoder.feed(encode_frame(1, b"abcd")[:kept])) == []
    with pytest.raises(FrameCutShort) as caught:
        decoder.end()
    assert caught.value.missing_bytes == missing


def test_child_side_reads_until_the_end_and_writes_whole() -> None:
    """What one descriptor writes, the other reads, to the end of the stream."""
    reading, writing = os.pipe()
    write_frame(writing, 5, b"hello")
    write_frame(writing, 0, b"")
    os.close(writing)
    assert list(read_frames(reading)) == [(5, b"hello"), (0, b"")]
    os.close(reading)
