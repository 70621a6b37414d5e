"""A connection of either end: grpclib's, in bounds.

Owns the bytes read in a turn of the loop, the bound of all messages of a peer, and how a connection ends. A flood of
pings, settings, resets or empty frames costs the time for reading, and no memory: the other connections have a turn
between two reads, and a peer that does not take answers is not read from.
"""

import asyncio
import contextlib
import math
from typing import Any, Final, cast

from grpclib.config import Configuration
from grpclib.protocol import AbstractHandler, H2Protocol
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, UnknownFrameReceived
from h2.exceptions import ProtocolError

READ_BYTES: Final = 8 * 1024
"""Bytes of a connection in a turn of the loop, so that a flood holds up other connections for milliseconds only."""
LEAVE_SECONDS: Final = 0.5
"""How long a peer may take to read the last bytes."""
FRAME_BYTES: Final = 9 + 16 * 1024
"""The largest frame of a request, with the frame's head."""


class Connection(H2Protocol, asyncio.BufferedProtocol):
    """A connection of a server or of a client."""

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
        """`limit_bytes` bounds the sum of the peer's messages."""
        super().__init__(handler, config, h2_config)
        self._buffer, self._limit_bytes = bytearray(READ_BYTES), limit_bytes

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the peer our settings."""
        super().connection_made(transport)
        self.transport = cast("asyncio.Transport", transport)
        self.http = self.connection._connection  # noqa: SLF001  grpclib has no public name for h2's connection
        # Unknown frames must be ignored (RFC 9113, 5.5); grpclib would fail.
        self.processor.processors[UnknownFrameReceived] = _ignore

    def get_buffer(self, sizehint: int) -> bytearray:
        """The buffer for the next bytes."""
        del sizehint
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Handle bytes of the peer."""
        try:
            events = self.connection.feed(bytes(memoryview(self._buffer)[:nbytes]))
        except (ProtocolError, UnicodeDecodeError):
            self.hang_up()  # with the reason, never sent by grpclib
            return
        self._limit_bytes -= sum(len(event.data) for event in events if isinstance(event, DataReceived) and event.data)
        if self._limit_bytes < 0:
            self.http.close_connection(ErrorCodes.ENHANCE_YOUR_CALM)
            self.hang_up()
            return
        for event in events:
            self.processor.process(event)
        if not self.connection.is_closing():
            self.connection.flush()

    def pause_writing(self) -> None:
        """Read no questions from a peer that does not read answers, so that answers cannot pile up."""
        super().pause_writing()
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on reading: the peer takes answers."""
        super().resume_writing()
        self.transport.resume_reading()

    # What a client calls.

    def begin_anew(self, limit_bytes: float) -> None:
        """Give the next answer bounds of its own, after the present answer is complete."""
        self._limit_bytes = limit_bytes

    # What a server calls.

    def make_room(self, size_bytes: int) -> None:
        """Free so many bytes of the connection's window; the peer learns of the room with our next frame."""
        if size_bytes and not self.connection.is_closing():
            with contextlib.suppress(ProtocolError):  # after a GOAWAY no more bytes are taken, and no room is needed
                self.http.increment_flow_control_window(size_bytes)

    def hang_up(self) -> None:
        """Send pending bytes, then leave, even if the peer does not take the bytes."""
        # Without GOAWAY: on a GOAWAY some clients drop answers received and not yet read.
        if not self.connection.is_closing():
            self.connection.flush()
            asyncio.get_running_loop().call_later(LEAVE_SECONDS, self.transport.abort)
            self.processor.close("Connection closed")


def _ignore(event: Any) -> None:
    del event
