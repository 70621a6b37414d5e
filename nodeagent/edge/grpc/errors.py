"""The errors of a call or a socket.

SocketUnavailable   our own socket cannot be opened
AnswerRefused       the peer has understood the call and says no
AnswerBroken        the answer is missing or malformed
"""

from nodeagent.edge.grpc.status import Status
from nodeagent.model.errors import NodeagentError


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
