"""What the agent and the child process that reads a kubeconfig say to each other: one JSON document each way.

Owns their form, and by what both see that a file is no longer what it was.
"""

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from nodeagent.edge.host.errors import HostError
from nodeagent.edge.host.files.atomic_file import read_bounded
from nodeagent.edge.kube.client_configuration import ClientConfiguration

FILE_BYTES_MAX = 1 << 20
"""Of a kubeconfig, and of each file that it names."""
WORDS_BYTES_MAX = 8 << 20
"""Of an answer: a kubeconfig's worth of authority, certificate, key and token, in base64."""


class Question(Struct, frozen=True):
    """What the child process is to read."""

    path: str
    scratch: str
    """A directory that the asker empties: the library puts certificates on disk, and its tidying up can be killed."""


class Reading(Struct, frozen=True, tag=True):
    """A kubeconfig that was read."""

    configuration: ClientConfiguration
    digests: dict[str, str]
    """Of each file that had a say, the kubeconfig itself among them, from before the library read it."""
    read_at: float
    """In seconds since 1970."""
    is_made: bool = False
    """A program or an identity provider made the token: asked again, they make another."""
    expires_at: float | None = None
    """When the token ends that was made, in seconds since 1970."""


class Refusal(Struct, frozen=True, tag=True):
    """Why there is no reading, in one line."""

    reason: str


def digest_files(paths: Iterable[str]) -> dict[str, str]:
    """By what each file is known again; one that cannot be read is known by that."""
    return {path: _digest(path) for path in paths}


def digest(content: bytes) -> str:
    """By what a content is known again."""
    return sha256(content).hexdigest()


def _digest(path: str) -> str:
    try:
        return digest(read_bounded(Path(path), limit_bytes=FILE_BYTES_MAX))
    except HostError as error:
        return type(error).__name__
