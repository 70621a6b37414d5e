"""What is answered to bytes that are no request: problem details like every other error, and no word in the log.

Owns the one place where the library would answer by itself. Refuses to repeat more than the first line of its reason:
the rest is what the client sent.
"""

from http import HTTPStatus

from nodeagent.edge.http.routes import render_problem
from nodeagent.edge.http.slim import BaseRequest, RequestHandler, Server, StreamResponse
from nodeagent.edge.http.slim import Response as WireResponse

REASON_LENGTH = 120


class ProblemHandler(RequestHandler):
    """One connection."""

    __slots__ = ()

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
        headers = {"Content-Type": problem.content_type, "X-Content-Type-Options": "nosniff"}
        response = WireResponse(body=problem.body, status=problem.status, headers=headers)
        response.force_close()
        return response


class ProblemServer(Server):
    """Makes such connections."""

    def __call__(self) -> ProblemHandler:
        """For the loop: a connection has come in."""
        return ProblemHandler(self, loop=self._loop, **self._kwargs)
