"""The errors of opening an HTTP address and reading a request.

HttpError
├── BodyTooLarge            a request's body is over the limit
├── ServerBusy              a request has waited too long for other requests
├── ListenFailed            the agent cannot listen on the address
├── WebhookRefused          a server of the configuration has not taken a document
└── WebConfigInvalid        the web configuration file cannot be used as written
"""

from collections.abc import Sequence
from pathlib import Path


class HttpError(Exception):
    """The HTTP edge cannot work."""


class BodyTooLarge(HttpError):
    """A request's body is over the limit; the rest of the body was not read."""


class ServerBusy(HttpError):
    """A request has waited too long for other requests; a retry may be served."""


class ListenFailed(HttpError):
    """The address is taken, not ours, or impossible."""

    def __init__(self, key: str, address: str, reason: str, remedy: str, *, is_taken: bool = False) -> None:
        super().__init__(f"cannot listen on {address} ({key}): {reason}; {remedy}")
        self.key, self.address, self.reason, self.remedy = key, address, reason, remedy
        self.is_taken = is_taken


class WebhookRefused(HttpError):
    """A server of the configuration has not taken a document, or not said so."""

    def __init__(self, host: str, reason: str) -> None:
        super().__init__(f"{host} has not taken the request: {reason}")


class WebConfigInvalid(HttpError):
    """The web configuration is invalid: a configured TLS or password must not be left out."""

    def __init__(self, path: Path, problems: Sequence[str]) -> None:
        super().__init__(
            f"cannot use web configuration {path}: {'; '.join(problems)}; mend it, nothing is served before"
        )
        self.path, self.problems = path, tuple(problems)
