"""The agent's identity at the API server: a pod's service account or a kubeconfig, found, read and kept fresh.

Owns the search and the re-reading: tokens in files are replaced, and programs give tokens with an end.
The files of a service account are read here, a kubeconfig by a child process: see `kubeconfig.child`.
Refuses to guess: a named kubeconfig is used or reported, never passed over for another source.
"""

import math
import os
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import anyio
from msgspec import MsgspecError, Struct
from msgspec.json import decode, encode

from nodeagent.core.children.ask_once import ask_once
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.errors import ChildError, FrameTooLarge, WorkerError
from nodeagent.edge.host.errors import HostError
from nodeagent.edge.host.files.atomic_file import read_bounded
from nodeagent.edge.host.files.pseudo_file import read_attribute
from nodeagent.edge.kube.client_configuration import ClientConfiguration, Way
from nodeagent.edge.kube.errors import CredentialsInvalid
from nodeagent.edge.kube.kubeconfig.words import (
    FILE_BYTES_MAX,
    WORDS_BYTES_MAX,
    Question,
    Reading,
    Refusal,
    digest_files,
)

_HOST, _PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")
LOAD_SECONDS = 30.0
"""For the files of an account; for a kubeconfig, including the named programs and identity provider."""
_FRESH_SECONDS = (60.0, 300.0)
"""How long before the end a token is renewed, at least and at most; kubernetes_asyncio takes five minutes."""
_FRESH_SHARE = 5
_SCRATCH = "nodeagent-kubeconfig-"
_LEFT_SECONDS = 10 * LOAD_SECONDS
"""The age of a scratch directory that no reading can have: its agent was killed."""
_DEFAULT_NAMESPACE = "default"
CHILD = (sys.executable, "-P", "-m", "nodeagent.edge.kube.kubeconfig.child")
"""With the agent's environment, perhaps needed by token programs, and without modules of the working directory."""


class Credentials(Protocol):
    """A source of credentials."""

    @property
    def where(self) -> str:
        """The file or directory, for people."""
        ...

    def read_namespace(self) -> str:
        """The namespace for objects of the agent where the settings name none; blocks."""
        ...

    async def load(self, worker: WorkerThread, *, is_refused: bool = False) -> ClientConfiguration:
        """A server, a trust anchor and an identity; `is_refused` for a last identity refused by the server.

        Raises:
            CredentialsInvalid: the credentials cannot be used.
        """
        ...


class InClusterCredentials(Struct, frozen=True):
    """The service account of the agent's pod."""

    environ: Mapping[str, str]
    directory: Path

    @property
    def where(self) -> str:
        """The directory mounted by the kubelet."""
        return str(self.directory)

    def read_namespace(self) -> str:
        """The account's own namespace."""
        return read_attribute(self.directory / "namespace") or _DEFAULT_NAMESPACE

    async def load(self, worker: WorkerThread, *, is_refused: bool = False) -> ClientConfiguration:  # noqa: ARG002 - the files say all
        """Read the present token and trust anchor."""
        try:
            return await worker.run(self._read, timeout_seconds=LOAD_SECONDS, what="reading API credentials")
        except (WorkerError, HostError) as error:
            raise CredentialsInvalid(self.where, str(error)) from error

    def _read(self) -> ClientConfiguration:
        host, port = self.environ[_HOST], self.environ[_PORT]
        token = self._read_file("token").decode("ascii", "replace").strip()
        server = f"https://[{host}]:{port}" if {":", "%"} & {*host} else f"https://{host}:{port}"
        return ClientConfiguration(Way(server, self._read_file("ca.crt")), f"Bearer {token}")

    def _read_file(self, name: str) -> bytes:
        content = read_bounded(self.directory / name, limit_bytes=FILE_BYTES_MAX)
        if not content.strip():
            raise CredentialsInvalid(self.where, f"{name} is empty")
        return content


class Kubeconfig:
    """A kubeconfig file, as used by kubectl."""

    def __init__(self, path: Path, *, child: tuple[str, ...] = CHILD) -> None:
        self._path, self._child = path, child
        self._last: Reading | None = None

    @property
    def where(self) -> str:
        """The kubeconfig's path."""
        return str(self._path)

    def read_namespace(self) -> str:
        """The default namespace: a person's kubeconfig has no place for the agent's objects."""
        return _DEFAULT_NAMESPACE

    async def load(self, worker: WorkerThread, *, is_refused: bool = False) -> ClientConfiguration:
        """The present content of the kubeconfig and all named files: read by a child process, after a change only."""
        try:
            last = self._last
            if last is None or not await self._holds(last, worker, is_refused=is_refused):
                last = self._last = await self._read(worker)
        except (WorkerError, ChildError, FrameTooLarge, OSError, MsgspecError) as error:
            raise CredentialsInvalid(self.where, str(error)) from error
        return last.configuration

    async def _holds(self, last: Reading, worker: WorkerThread, *, is_refused: bool) -> bool:
        if last.is_made and (is_refused or time.time() >= _find_renewal(last)):
            return False
        files = last.digests
        now = await worker.run(
            lambda: digest_files(files), timeout_seconds=LOAD_SECONDS, what="looking at the kubeconfig's files"
        )
        return now == files

    async def _read(self, worker: WorkerThread) -> Reading:
        scratch = await worker.run(_make_scratch, timeout_seconds=LOAD_SECONDS, what="making a directory")
        try:
            answer = await ask_once(
                self._child,
                encode(Question(str(self._path), scratch.name)),
                env=os.environ,
                name="kubeconfig",
                timeout_seconds=LOAD_SECONDS,
                limit_bytes=WORDS_BYTES_MAX,
            )
        finally:
            with anyio.CancelScope(shield=True):
                await worker.run(scratch.cleanup, timeout_seconds=LOAD_SECONDS, what="removing the directory")
        found = decode(answer, type=Reading | Refusal)
        if isinstance(found, Refusal):
            raise CredentialsInvalid(self.where, found.reason)
        return found


def _make_scratch() -> TemporaryDirectory[str]:
    """An empty directory; the ones left by killed agents are removed, as keys may lie in them."""
    scratch = TemporaryDirectory(prefix=_SCRATCH)
    youngest_left = time.time() - _LEFT_SECONDS
    for path in Path(scratch.name).parent.glob(f"{_SCRATCH}*"):
        with suppress(FileNotFoundError):  # removed by another agent meanwhile
            status = path.lstat()
            if status.st_uid == os.geteuid() and status.st_mtime < youngest_left:
                shutil.rmtree(path)
    return scratch


def find_credentials(kubeconfig: Path | None, environ: Mapping[str, str]) -> Credentials | None:
    """The named kubeconfig, or else the service account where present."""
    if kubeconfig is not None:
        return Kubeconfig(kubeconfig)
    account = InClusterCredentials(environ, SERVICE_ACCOUNT_DIR)
    return account if environ.get(_HOST) and environ.get(_PORT) and _has_token(account) else None


def _has_token(account: InClusterCredentials) -> bool:
    return (account.directory / "token").exists()


def _find_renewal(last: Reading) -> float:
    """When a made token is renewed, in seconds since 1970; infinite for a token without a known end."""
    if last.expires_at is None:
        return math.inf
    least, most = _FRESH_SECONDS
    return last.expires_at - min(most, max(least, (last.expires_at - last.read_at) / _FRESH_SHARE))
