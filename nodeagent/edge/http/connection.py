"""One connection, where the library would do something by itself that we want otherwise.

Bytes that are no request get problem details like every other error, and no word in the log; the entrance hears what
comes and when a connection is gone. Refuses to repeat more than the first line of a reason: the rest is what the client
sent.
"""

from http import HTTPStatus
from typing import Protocol

from nodeagent.edge.http.messages import SERVER
from nodeagent.edge.http.routes import render_problem
from nodeagent.edge.http.slim import BaseRequest, RequestHandler, Server, StreamResponse
from nodeagent.edge.http.slim import Response as WireResponse

REASON_LENGTH = 120


class Visit(Protocol):
    """Who wants to know of a connection's life."""

    def hears(self, *, ends: bool) -> None:
        """Bytes have come; `ends` is whether nothing of a request without a body can be missing or be left over."""

    def serves(self) -> None:
        """A request is here, whole but for its body."""

    def rests(self, *, is_read: bool) -> None:
        """Its answer is gone; `is_read` is whether all of the request was read."""

    def leaves(self) -> None:
        """The connection is gone."""


class ProblemHandler(RequestHandler):
    """One connection."""

    __slots__ = ("visit",)

    visit: Visit

    def data_received(self, data: bytes) -> None:
        """For the loop: bytes have come."""
        self.visit.hears(ends=data.endswith(b"\r\n\r\n"))
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        """For the loop: it is over."""
        self.visit.leaves()
        super().connection_lost(exc)

    def handle_error(
        self, request: BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> StreamResponse:
        """The answer to what could not be understood; the connection ends with it.

        Raises:
            ConnectionError: a part of another answer was sent already.
        """
        if request.writer.output_size > 0:
            raise ConnectionError("an answer was begun and cannot be ended") from exc
        reason = (message or "").partition("\n")[0].rstrip(":")[:REASON_LENGTH]
        problem = render_problem(status, HTTPStatus(status).phrase.lower(), reason)
        headers = {"Content-Type": problem.content_type, "X-Content-Type-Options": "nosniff", "Server": SERVER}
        response = WireResponse(body=problem.body, status=problem.status, headers=headers)
        response.force_close()
        return response


class ProblemServer(Server):
    """Makes such connections."""

    def make(self, visit: Visit) -> ProblemHandler:
        """For the entrance: a connection has come in."""
        handler = ProblemHandler(self, loop=self._loop, **self._kwargs)
        handler.visit = visit
        return handler


def render_raw(status: int, title: str, detail: str = "", *, headers: dict[str, str] | None = None) -> bytes:
    """A problem as bytes, for who has not asked yet."""
    problem = render_problem(status, title, detail)
    told = {
        "Server": SERVER,
        "Content-Type": problem.content_type,
        "Content-Length": str(len(problem.body)),
        "Connection": "close",
        **(headers or {}),
    }
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {value}" for name, value in told.items())]
    return "\r\n".join([*lines, "", ""]).encode() + problem.body
