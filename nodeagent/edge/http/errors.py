"""What can go wrong when an HTTP address is opened or a request is read.

HttpError
├── BodyTooLarge            a request's body is over the limit
├── ServerBusy              a request has waited too long for others
├── ListenFailed            the address cannot be listened on
└── WebConfigInvalid        the web configuration file cannot be used as it is written
"""

from collections.abc import Sequence
from pathlib import Path


class HttpError(Exception):
    """The HTTP edge cannot do its work."""


class BodyTooLarge(HttpError):
    """A request's body is over the limit; the rest of it was not read."""


class ServerBusy(HttpError):
    """A request has waited too long for others; asked again later it may be served."""


class ListenFailed(HttpError):
    """The address is taken, not ours, or impossible."""

    def __init__(self, key: str, address: str, reason: str, remedy: str, *, is_taken: bool = False) -> None:
        super().__init__(f"cannot listen on {address} ({key}): {reason}; {remedy}")
        self.key, self.address, self.reason, self.remedy = key, address, reason, remedy
        self.is_taken = is_taken


class WebConfigInvalid(HttpError):
    """Whoever asked for TLS or passwords must not be served without."""

    def __init__(self, path: Path, problems: Sequence[str]) -> None:
        super().__init__(
            f"cannot use web configuration {path}: {'; '.join(problems)}; mend it, nothing is served before"
        )
        self.path, self.problems = path, tuple(problems)
