"""The errors of a call or a socket, and how a call may end, by the names of gRPC.

SocketUnavailable   our own socket cannot be opened
AnswerRefused       the peer has understood the call and says no
AnswerBroken        the answer is missing or malformed
"""

from grpclib.const import Status

from nodeagent.model.errors import NodeagentError

__all__ = ["AnswerBroken", "AnswerRefused", "SocketUnavailable", "Status"]


class SocketUnavailable(NodeagentError):
    """A listening socket cannot be opened."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"cannot listen on {path}: {reason}")
        self.path, self.reason = path, reason


class AnswerRefused(Exception):
    """The peer has understood the call and says no."""

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(text or status.name)
        self.status, self.text = status, text


class AnswerBroken(Exception):
    """The answer is missing or malformed."""
