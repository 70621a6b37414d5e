"""What can go wrong when an HTTP address is opened.

HttpError
└── ListenFailed    the address cannot be listened on
"""


class HttpError(Exception):
    """The HTTP edge cannot do its work."""


class ListenFailed(HttpError):
    """The address is taken, not ours, or impossible."""

    def __init__(self, key: str, address: str, reason: str, remedy: str) -> None:
        super().__init__(f"cannot listen on {address} ({key}): {reason}; {remedy}")
        self.key, self.address, self.reason, self.remedy = key, address, reason, remedy
