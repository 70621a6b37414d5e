"""One connection of either side: grpclib's, in bounds.

Owns what is read in one turn of the loop, what all messages of a peer may come to, and how a connection ends. A flood
of pings, settings, resets or empty frames costs the time in which it is read, and no memory: the other connections have
their turn between two reads, and a peer that does not take what it is answered is not read from.
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
"""Of each connection in one turn of the loop, so that a flood on one holds up the others for milliseconds."""
LEAVE_SECONDS: Final = 0.5
"""How long a peer may take to read the last bytes."""
FRAME_BYTES: Final = 9 + 16 * 1024
"""The largest frame of a request, with its head."""


class Connection(H2Protocol, asyncio.BufferedProtocol):
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

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Tell the peer what is accepted here."""
        super().connection_made(transport)
        self.transport = cast("asyncio.Transport", transport)
        self.http = self.connection._connection  # noqa: SLF001  grpclib has no other name for what it drives
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

    # What a server calls.

    def make_room(self, size_bytes: int) -> None:
        """So much of the connection's window is free again, as the peer learns with what is sent next."""
        if size_bytes and not self.connection.is_closing():
            with contextlib.suppress(ProtocolError):  # after a GOAWAY nothing is taken any more, and no room needed
                self.http.increment_flow_control_window(size_bytes)

    def hang_up(self) -> None:
        """Send what is waiting to be sent, then leave; a peer that does not take it is left all the same."""
        # Without GOAWAY: some clients drop answers that they have got and not yet read when they hear it.
        if not self.connection.is_closing():
            self.connection.flush()
            asyncio.get_running_loop().call_later(LEAVE_SECONDS, self.transport.abort)
            self.processor.close("Connection closed")


def _ignore(event: Any) -> None:
    del event
