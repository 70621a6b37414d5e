"""The sending half of a connection: answers, as fast as the peer's flow control lets them go. No I/O, no waiting.

It owns the output, the windows, and what waits for a window.
An answer on a stream that the peer has given up vanishes: the caller need not know.
"""

from grpclib.const import Status

from nodeagent.edge.kubelet.wire import frames
from nodeagent.edge.kubelet.wire.grpc_status import (
    OK_TRAILERS,
    RESPONSE_HEADERS,
    encode_message,
    encode_trailers,
)

_LAST = frames.END_HEADERS | frames.END_STREAM


class WindowOverflowed(Exception):
    """The peer has granted more than a window can hold."""


class _Answer:
    """One call's answer on its way."""

    __slots__ = ("pending", "started", "trailers", "window")

    def __init__(self, window: int) -> None:
        self.window = window
        self.started = False
        self.pending = bytearray()
        self.trailers = b""


class Sender:
    """Collects output; whoever owns the transport takes it after every call."""

    def __init__(self) -> None:
        self._output: list[bytes] = []
        self._answers: dict[int, _Answer] = {}
        self._window = self._initial_window = frames.DEFAULT_WINDOW_BYTES
        self._max_frame_bytes = frames.DEFAULT_MAX_FRAME_BYTES

    def __len__(self) -> int:
        """How many answers are not complete."""
        return len(self._answers)

    def __contains__(self, stream_id: int) -> bool:
        """Whether the peer still waits for (more of) this answer."""
        return stream_id in self._answers

    def put(self, frame: bytes) -> None:
        """Send a frame of the connection itself."""
        self._output.append(frame)

    def take_output(self) -> bytes:
        """Everything that must be sent now."""
        if not self._output:
            return b""
        output, self._output = self._output, []
        return b"".join(output)

    def is_drained(self, stream_id: int) -> bool:
        """Whether nothing on this stream waits for the peer's permission."""
        answer = self._answers.get(stream_id)
        return answer is None or not answer.pending

    def open(self, stream_id: int) -> None:
        """The peer waits for an answer on this stream."""
        self._answers[stream_id] = _Answer(self._initial_window)

    def drop(self, stream_id: int) -> None:
        """The peer no longer waits."""
        self._answers.pop(stream_id, None)

    def answer(self, stream_id: int, message: bytes) -> None:
        """The whole answer of a unary call, in one piece where the windows allow."""
        answer = self._answers.get(stream_id)
        if answer is None:
            return
        body = encode_message(message)
        size = len(body)
        if size > min(answer.window, self._window, self._max_frame_bytes):
            self.send(stream_id, message)
            self.finish(stream_id, Status.OK)
            return
        self._window -= size
        del self._answers[stream_id]
        self._output += (
            frames.encode_frame(frames.HEADERS, frames.END_HEADERS, stream_id, RESPONSE_HEADERS),
            frames.encode_frame(frames.DATA, 0, stream_id, body),
            frames.encode_frame(frames.HEADERS, _LAST, stream_id, OK_TRAILERS),
        )

    def send(self, stream_id: int, message: bytes) -> None:
        """One message of an answer that may have more."""
        answer = self._answers.get(stream_id)
        if answer is None:
            return
        if not answer.started:
            answer.started = True
            self._output.append(frames.encode_frame(frames.HEADERS, frames.END_HEADERS, stream_id, RESPONSE_HEADERS))
        answer.pending += encode_message(message)
        self._drain(stream_id, answer)

    def finish(self, stream_id: int, status: Status, text: str = "") -> None:
        """The end of an answer, good or bad."""
        answer = self._answers.get(stream_id)
        if answer is None:
            return
        trailers = encode_trailers(status, text)
        answer.trailers = trailers if answer.started else RESPONSE_HEADERS + trailers
        self._drain(stream_id, answer)

    def grant(self, stream_id: int, credit_bytes: int) -> list[int]:
        """The peer lets us send more on a stream (or, with 0, on the connection); returns the streams now drained.

        Raises:
            WindowOverflowed: the window cannot hold that much.
        """
        if stream_id:
            answer = self._answers.get(stream_id)
            if answer is None:
                return []
            answer.window = _grow(answer.window, credit_bytes)
        else:
            self._window = _grow(self._window, credit_bytes)
        return self._drain_waiting()

    def set_initial_window(self, size_bytes: int) -> list[int]:
        """The peer changes all streams' windows; returns the streams now drained.

        Raises:
            WindowOverflowed: a window cannot hold that much.
        """
        change = size_bytes - self._initial_window
        self._initial_window = _grow(0, size_bytes)
        for answer in self._answers.values():
            answer.window = _grow(answer.window, change)
        return self._drain_waiting()

    def set_max_frame(self, size_bytes: int) -> None:
        """The peer takes frames of this size."""
        self._max_frame_bytes = size_bytes

    def _drain_waiting(self) -> list[int]:
        waiting = [(stream_id, answer) for stream_id, answer in self._answers.items() if answer.pending]
        for stream_id, answer in waiting:
            self._drain(stream_id, answer)
        return [stream_id for stream_id, answer in waiting if not answer.pending]

    def _drain(self, stream_id: int, answer: _Answer) -> None:
        while answer.pending:
            size = min(len(answer.pending), answer.window, self._window, self._max_frame_bytes)
            if size <= 0:
                return
            self._output.append(frames.encode_frame(frames.DATA, 0, stream_id, bytes(answer.pending[:size])))
            del answer.pending[:size]
            answer.window -= size
            self._window -= size
        if answer.trailers:
            del self._answers[stream_id]
            self._output.append(frames.encode_frame(frames.HEADERS, _LAST, stream_id, answer.trailers))


def _grow(window: int, credit_bytes: int) -> int:
    grown = window + credit_bytes
    if grown > frames.LARGEST_WINDOW_BYTES:
        raise WindowOverflowed
    return grown
