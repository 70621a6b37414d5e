"""The messages between the agent and the child process that reads a kubeconfig: a JSON document each way.

Owns the form of the messages, and the digests by which both notice a changed file.
"""

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from nodeagent.edge.host.errors import HostError
from nodeagent.edge.host.files.atomic_file import read_bounded
from nodeagent.edge.kube.client_configuration import ClientConfiguration

FILE_BYTES_MAX = 1 << 20
"""Of a kubeconfig, and of each named file."""
WORDS_BYTES_MAX = 8 << 20
"""Of an answer: authority, certificate, key and token of a kubeconfig, in base64."""


class Question(Struct, frozen=True):
    """The task of the child process."""

    path: str
    scratch: str
    """A directory emptied by the agent: the library puts certificates on disk, and may be killed before the cleanup."""


class Reading(Struct, frozen=True, tag=True):
    """The content of a kubeconfig."""

    configuration: ClientConfiguration
    digests: dict[str, str]
    """By path, of the kubeconfig and all files used, from before the library's reading."""
    read_at: float
    """In seconds since 1970."""
    is_made: bool = False
    """Whether a program or an identity provider made the token: a new reading makes a new token."""
    expires_at: float | None = None
    """When a made token ends, in seconds since 1970."""


class Refusal(Struct, frozen=True, tag=True):
    """Why there is no reading, in one line."""

    reason: str


def digest_files(paths: Iterable[str]) -> dict[str, str]:
    """The digest of each file; for an unreadable file, the kind of error."""
    return {path: _digest(path) for path in paths}


def digest(content: bytes) -> str:
    """The digest of a content."""
    return sha256(content).hexdigest()


def _digest(path: str) -> str:
    try:
        return digest(read_bounded(Path(path), limit_bytes=FILE_BYTES_MAX))
    except HostError as error:
        return type(error).__name__
