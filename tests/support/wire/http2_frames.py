"""HTTP/2 frames as bytes: the constants of RFC 9113 that a server needs, and pure encoders.

Header blocks are written as literals without indexing (RFC 7541, 6.2.2), so that encoding has no state
and each answer's header block is a constant.
"""

import struct
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_HEADER_BYTES: Final = 9
DEFAULT_WINDOW_BYTES: Final = 65_535
DEFAULT_MAX_FRAME_BYTES: Final = 16_384

DATA: Final = 0x0
HEADERS: Final = 0x1
PRIORITY: Final = 0x2
RST_STREAM: Final = 0x3
SETTINGS: Final = 0x4
PING: Final = 0x6
GOAWAY: Final = 0x7
WINDOW_UPDATE: Final = 0x8
CONTINUATION: Final = 0x9

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4

SETTING_INITIAL_WINDOW_SIZE: Final = 0x4

ENHANCE_YOUR_CALM: Final = 0xB

_FRAME_HEADER: Final = struct.Struct(">HBBBI")
_SETTING: Final = struct.Struct(">HI")
_WORD: Final = struct.Struct(">I")


def encode_frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """One frame; the caller keeps the payload within the peer's frame size."""
    size = len(payload)
    return _FRAME_HEADER.pack(size >> 8, size & 0xFF, kind, flags, stream_id) + payload


def parse_frame_header(data: bytes | bytearray, position: int) -> tuple[int, int, int, int]:
    """Payload size, kind, flags and stream id of the frame that begins here."""
    high, low, kind, flags, stream_id = _FRAME_HEADER.unpack_from(data, position)
    return high << 8 | low, kind, flags, stream_id & 0x7FFF_FFFF


def encode_settings(settings: dict[int, int]) -> bytes:
    return encode_frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(key, value) for key, value in settings.items()))


def parse_settings(payload: bytes) -> list[tuple[int, int]]:
    """The pairs of a SETTINGS frame whose size is a multiple of six, in order."""
    return list(_SETTING.iter_unpack(payload))


def encode_window_update(stream_id: int, credit_bytes: int) -> bytes:
    """Permission for the peer to send more."""
    return encode_frame(WINDOW_UPDATE, 0, stream_id, _WORD.pack(credit_bytes))


def encode_reset(stream_id: int, code: int) -> bytes:
    return encode_frame(RST_STREAM, 0, stream_id, _WORD.pack(code))


def parse_word(payload: bytes) -> int:
    """The one 31-bit number that the frame consists of."""
    word: int = _WORD.unpack(payload)[0]
    return word & 0x7FFF_FFFF


def encode_header(name: bytes, value: bytes) -> bytes:
    """One header field as a literal that neither side remembers."""
    return b"\x00" + _encode_string(name) + _encode_string(value)


def _encode_string(text: bytes) -> bytes:
    return _encode_length(len(text)) + text


def _encode_length(length: int) -> bytes:
    # RFC 7541, 5.1, with a prefix of seven bits.
    if length < 0x7F:
        return bytes((length,))
    encoded = bytearray((0x7F,))
    rest = length - 0x7F
    while rest >= 0x80:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)
