"""What can go wrong when an HTTP address is opened or a request is read.

HttpError
├── BodyTooLarge    a request's body is over the limit
└── ListenFailed    the address cannot be listened on
"""


class HttpError(Exception):
    """The HTTP edge cannot do its work."""


class BodyTooLarge(HttpError):
    """A request's body is over the limit; the rest of it was not read."""


class ListenFailed(HttpError):
    """The address is taken, not ours, or impossible."""

    def __init__(self, key: str, address: str, reason: str, remedy: str) -> None:
        super().__init__(f"cannot listen on {address} ({key}): {reason}; {remedy}")
        self.key, self.address, self.reason, self.remedy = key, address, reason, remedy
