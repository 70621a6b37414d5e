"""Frames as bytes, judged by an independent implementation."""

import pytest
from hpack import Decoder
from hyperframe.frame import Frame, GoAwayFrame, RstStreamFrame, SettingsFrame, WindowUpdateFrame

from nodeagent.edge.kubelet.wire import frames


def parse(data: bytes) -> Frame:
    frame, size = Frame.parse_frame_header(memoryview(data[:9]))
    frame.parse_body(memoryview(data[9 : 9 + size]))
    return frame


def test_settings_read_back() -> None:
    """An independent parser finds the settings that were written, and so do we."""
    data = frames.encode_settings({frames.SETTING_INITIAL_WINDOW_SIZE: 1 << 20, frames.SETTING_MAX_FRAME_SIZE: 1 << 14})
    frame = parse(data)
    assert isinstance(frame, SettingsFrame)
    assert frame.settings == {4: 1 << 20, 5: 1 << 14}
    assert frames.parse_settings(data[9:]) == [(4, 1 << 20), (5, 1 << 14)]


def test_control_frames_read_back() -> None:
    """Window updates, resets and farewells carry what they were given."""
    update, reset = parse(frames.encode_window_update(3, 70_000)), parse(frames.encode_reset(5, 7))
    goaway = parse(frames.encode_goaway(9, 1, "why"))
    assert isinstance(update, WindowUpdateFrame)
    assert (update.stream_id, update.window_increment) == (3, 70_000)
    assert isinstance(reset, RstStreamFrame)
    assert (reset.stream_id, reset.error_code) == (5, 7)
    assert isinstance(goaway, GoAwayFrame)
    assert (goaway.last_stream_id, goaway.error_code, goaway.additional_data) == (9, 1, b"why")


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65_535, 65_536, frames.LARGEST_MAX_FRAME_BYTES])
def test_frame_header_is_its_own_inverse(size: int) -> None:
    """Size, kind, flags and stream come back from a frame's first nine bytes, whatever the size."""
    data = frames.encode_frame(frames.DATA, frames.END_STREAM, 2**31 - 1, bytes(size))
    assert (size, frames.DATA, frames.END_STREAM, 2**31 - 1) == frames.parse_frame_header(data, 0)


def test_reserved_bit_of_the_stream_id_is_ignored() -> None:
    """The first bit of the stream id means nothing (RFC 9113, 4.1)."""
    data = frames.encode_frame(frames.PING, 0, 0x8000_0001, bytes(8))
    assert frames.parse_frame_header(data, 0)[3] == 1


@pytest.mark.parametrize("length", [0, 1, 126, 127, 128, 254, 255, 300, 16_000])
def test_header_of_any_length_is_decoded(length: int) -> None:
    """A literal header field of any length is read back, and leaves nothing in the reader's table."""
    decoder = Decoder(max_header_list_size=1 << 20)
    block = frames.encode_header(b"grpc-message", b"x" * length)
    assert [(b"grpc-message", b"x" * length)] == decoder.decode(block, raw=True)
    assert not decoder.header_table.dynamic_entries
