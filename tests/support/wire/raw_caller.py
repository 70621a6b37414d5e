"""What is said to a gRPC server byte by byte."""

from tests.support.wire import http2_frames as frames

GREETING = frames.PREFACE + frames.encode_settings({})
ALLOCATE = "/v1beta1.DevicePlugin/Allocate"
LIST_AND_WATCH = "/v1beta1.DevicePlugin/ListAndWatch"


def head_block(path: str) -> bytes:
    """The header fields of a call, as literals that neither side remembers."""
    fields = {":method": "POST", ":path": path, "content-type": "application/grpc"}
    return b"".join(frames.encode_header(name.encode(), value.encode()) for name, value in fields.items())


def head(path: str, stream_id: int) -> bytes:
    return frames.encode_frame(frames.HEADERS, frames.END_HEADERS, stream_id, head_block(path))


def raw_call(path: str, body: bytes, stream_id: int = 1) -> bytes:
    """A whole call; the body is a message with its prefix."""
    return head(path, stream_id) + frames.encode_frame(frames.DATA, frames.END_STREAM, stream_id, body)
