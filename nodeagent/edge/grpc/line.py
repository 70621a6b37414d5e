"""One connection of either side: grpclib's, in bounds.

Owns what is read in one turn of the loop, what a peer may send that is no message, and how a connection ends.
A peer whose bytes are mostly not those of messages gets an allowance: it floods with pings, settings, resets, empty or
tiny frames, and each of them costs this end as much as a call.
"""

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any, Final, cast

from grpclib.config import Configuration
from grpclib.protocol import AbstractHandler, H2Protocol
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, UnknownFrameReceived
from h2.exceptions import ProtocolError
from hyperframe.frame import Frame

from nodeagent.edge.grpc.header_memory import RememberingDecoder, RememberingEncoder

READ_BYTES: Final = 32 * 1024
"""Of each connection in one turn of the loop, so that a flood on one holds up the others for milliseconds."""
LEAVE_SECONDS: Final = 0.5
"""How long a peer may take to read the last bytes."""
BURST_BYTES: Final = 64 * 1024
"""More than a hundred calls at once have besides their messages."""
FRAME_BYTES: Final = 9 + 16 * 1024
"""A frame of which the first bytes have come counts as no message yet."""
OWED_AT_MOST: Final = 64 * 1024
BYTES_PER_SECOND: Final = 1024
BYTES_PER_CALL: Final = 2 * 1024


class Allowance:
    """How many bytes a peer may send that are no message: some at once, some each second, some for each call."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._left, self._seen_at = now, float(BURST_BYTES), now()

    def spend(self, size_bytes: int) -> bool:
        """Whether the peer is within its means; a negative size is a message that turns out to be one."""
        now = self._now()
        earned = (now - self._seen_at) * BYTES_PER_SECOND
        self._left, self._seen_at = min(BURST_BYTES, self._left + earned) - size_bytes, now
        return self._left > -FRAME_BYTES

    def earn(self) -> None:
        """One more call was worth answering."""
        self._left = min(BURST_BYTES, self._left + BYTES_PER_CALL)


# h2 words every frame for a trace that nobody reads: a tenth of a short call, and 0.1 ms for 16 KiB of a long one.
Frame.__repr__ = object.__repr__  # type: ignore[method-assign]


class Line(H2Protocol, asyncio.BufferedProtocol):
    """Of a server, or of a client."""

    transport: asyncio.Transport
    http: H2Connection

    def __init__(
        self,
        handler: AbstractHandler,
        config: Configuration,
        h2_config: H2Configuration,
        *,
        limit_bytes: float = math.inf,
    ) -> None:
        """`limit_bytes` bounds what all messages of the peer may come to."""
        super().__init__(handler, config, h2_config)
        self._buffer, self._limit_bytes = bytearray(READ_BYTES), limit_bytes
        self._owed_bytes = 0
        self.allowance = Allowance()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Tell the peer what is accepted here."""
        super().connection_made(transport)
        self.transport = cast("asyncio.Transport", transport)
        self.http = self.connection._connection  # noqa: SLF001  grpclib has no other name for what it drives
        self.http.encoder = RememberingEncoder()
        self.http.decoder = RememberingDecoder(self.http.decoder.max_header_list_size)
        # What is not known must be ignored (RFC 9113, 5.5); grpclib would fail on it.
        self.processor.processors[UnknownFrameReceived] = _ignore

    def get_buffer(self, sizehint: int) -> bytearray:
        """Where the next bytes go."""
        del sizehint
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """The peer says something."""
        try:
            events = self.connection.feed(bytes(memoryview(self._buffer)[:nbytes]))
        except (ProtocolError, UnicodeDecodeError):
            self.hang_up()  # with the reason, which grpclib would keep to itself
            return
        message_bytes = sum(len(event.data) for event in events if isinstance(event, DataReceived) and event.data)
        self._limit_bytes -= message_bytes
        if self._limit_bytes < 0 or not self.allowance.spend(nbytes - message_bytes):
            self.http.close_connection(ErrorCodes.ENHANCE_YOUR_CALM)
            self.hang_up()
            return
        for event in events:
            self.processor.process(event)
        if not self.connection.is_closing():
            self.connection.flush()

    def pause_writing(self) -> None:
        """A peer that does not read its answers gets no more questions in, so that nothing piles up here."""
        super().pause_writing()
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        """The peer reads again."""
        super().resume_writing()
        self.transport.resume_reading()

    # What a client calls.

    def begin_anew(self, limit_bytes: float) -> None:
        """A question is answered: what comes from now on is another answer, in bounds of its own."""
        self._limit_bytes = limit_bytes
        self.allowance.earn()

    # What a server calls.

    def owe(self, size_bytes: int) -> None:
        """So much of the connection's window is free again; the peer is told now and then, not for each call."""
        self._owed_bytes += size_bytes
        if self._owed_bytes > OWED_AT_MOST:
            self.http.increment_flow_control_window(self._owed_bytes)
            self._owed_bytes = 0

    def hang_up(self) -> None:
        """Send what is waiting to be sent, then leave; a peer that does not take it is left all the same."""
        # Without GOAWAY: some clients drop answers that they have got and not yet read when they hear it.
        if not self.connection.is_closing():
            self.connection.flush()
            asyncio.get_running_loop().call_later(LEAVE_SECONDS, self.transport.abort)
            self.processor.close("Connection closed")


def _ignore(event: Any) -> None:
    del event
