"""The client for the API server: requests with deadline and rate limit, watches with a limit of silence.

Owns the connection, the credentials in use and their renewal, the rate, and the translation of every failure.
Refuses to know any kind of object: paths and documents come from the other modules of the package.
"""

import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager, nullcontext
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeVar

import aiohttp
import anyio

from nodeagent import __version__
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.errors import WorkerError
from nodeagent.core.log.audit import noting
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.kube.client_configuration import Access, Way, open_access
from nodeagent.edge.kube.credentials import LOAD_SECONDS, Credentials
from nodeagent.edge.kube.errors import (
    ApiBusy,
    ApiUnauthorized,
    ApiUnreachable,
    CredentialsInvalid,
    translate_answer,
)
from nodeagent.edge.kube.rate_limit import URGENT, RateLimit, parse_retry_after
from nodeagent.model.cluster import ApiCall

Json = dict[str, Any]

RENEW_SECONDS = 60.0
"""How long a token is used before the source is read again; the kubelet replaces files minutes before the end."""
NO_ANSWER = "none"
LINE_BYTES_MAX = 16 << 20
"""The longest line of a watch; the API server takes no object a tenth as large."""
T = TypeVar("T")
_log = get_logger(component="kube")
_UNNOTED = frozenset({"events", "leases", "selfsubjectaccessreviews", "selfsubjectrulesreviews"})
_TROUBLE = (aiohttp.ClientError, OSError, TimeoutError, ValueError)
JSON = "application/json"
PLAIN = "identity"
"""The encoding of watches: servers from 1.37 compress a line or few at a time, for which no reader has to be ready."""
DRY_RUN = {"dryRun": "All"}
"""The query of a change that the server only tries."""
READ_BYTES = 2 << 20
"""How much of an answer may arrive before being read."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Deadline and rate of requests."""

    timeout_seconds: float = 10.0
    requests_per_second: float = 5.0
    burst: int = 10


@dataclass(slots=True)
class _Session:
    way: Way
    access: Access
    authorization: str
    http: aiohttp.ClientSession
    loaded_at: float
    users: int = 0
    """Requests in progress."""
    watched: set[aiohttp.ClientResponse] = field(default_factory=set)

    async def send(
        self,
        method: str,
        path: str,
        types: tuple[str, str],
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        encoding: str = "gzip, deflate",
    ) -> aiohttp.ClientResponse:
        """The answer once the head has arrived; `types` are the content types of request and answer."""
        headers = {"Content-Type": types[0], "Accept": types[1], "User-Agent": f"nodeagent/{__version__}"}
        headers["Accept-Encoding"] = encoding
        if self.authorization:
            headers["Authorization"] = self.authorization
        return await self.http.request(
            method,
            self.access.server + path,
            params=query,
            data=None if body is None else json.dumps(body),
            headers=headers,
            proxy=self.access.proxy,
            server_hostname=self.access.server_hostname,
        )


class KubeClient:
    """Speaks JSON with an API server; belongs to the event loop's thread."""

    def __init__(self, credentials: Credentials, read_settings: Callable[[], ClientSettings] = ClientSettings) -> None:
        self._credentials, self._read_settings = credentials, read_settings
        self._worker = WorkerThread("API credentials")
        self._rate, self._urgent = RateLimit(), RateLimit()
        self._session: _Session | None = None
        self._is_refused = False
        """Whether the server refused the identity of the last session."""
        self._opening = anyio.Lock(fast_acquire=True)
        self.counts: Counter[ApiCall] = Counter()
        """The number of calls by verb and outcome, since the agent started."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        attempted: str,
        query: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = JSON,
        accept: str = JSON,
        in_turn: bool = True,
    ) -> Json:
        """Send a request and return the answer; `attempted` is the purpose in words.

        `in_turn` is False for a request of a waiting pod: sent at once, unless the server has asked for a pause.

        Raises:
            KubeError: the request failed; a rejected identity was renewed and tried once more before.
        """
        types = (content_type, accept)
        is_noted = is_change(method, path) and query != DRY_RUN
        with noting("kubernetes", path, attempted, _tell(method, body)) if is_noted else nullcontext():
            return await self._request(method, path, attempted, query, body, types, parse_document, in_turn=in_turn)

    async def fetch(self, path: str, parse: Callable[[bytes], T], *, attempted: str, query: Mapping[str, str]) -> T:
        """An answer too large for a whole object tree; `parse` raises a `ValueError` about a malformed answer.

        Raises:
            KubeError: the request failed; a rejected identity was renewed and tried once more before.
        """
        types = (JSON, JSON)
        return await self._request("GET", path, attempted, query, None, types, parse)

    async def watch(
        self,
        path: str,
        parse: Callable[[bytes], T],
        *,
        attempted: str,
        query: Mapping[str, str],
        silence_seconds: float,
        accept: str = JSON,
        on_open: Callable[[], object] = lambda: None,
    ) -> AsyncGenerator[T, None]:
        """The lines of a watch until the server ends the watch; `parse` raises a `ValueError` about a malformed line.

        `on_open` is called when the server has accepted the watch, perhaps long before the first line.

        Raises:
            KubeError: the watch was refused or broke, or was silent for so long that the server must be gone.
        """
        session = await self._take_turn(attempted)
        session.users += 1
        try:
            with self._translating(session, attempted, "WATCH"):
                with anyio.fail_after(self._read_settings().timeout_seconds):
                    response = await session.send("GET", path, (JSON, accept), query=query, encoding=PLAIN)
            session.watched.add(response)
        finally:
            session.users -= 1
            await self._leave(session)
        try:
            with self._translating(session, attempted, "WATCH"):
                self._count("WATCH", str(response.status))
                await self._check(response, attempted)
                on_open()
                async with aclosing(_read_lines(response.content, silence_seconds)) as lines:
                    async for line in lines:
                        yield parse(line)
        except ApiUnauthorized:
            self._give_up(session, is_refused=True)
            await self._leave(session)
            raise
        finally:
            session.watched.discard(response)
            response.close()

    async def read_namespace(self) -> str:
        """The namespace for objects of the agent where the settings name none.

        Raises:
            CredentialsInvalid: the credentials do not answer.
        """
        read = self._credentials.read_namespace
        try:
            return await self._worker.run(read, timeout_seconds=LOAD_SECONDS, what="reading our namespace")
        except WorkerError as error:
            raise CredentialsInvalid(self._credentials.where, str(error)) from error

    async def aclose(self) -> None:
        """End the connections; the next request opens new connections with fresh credentials."""
        session, self._session = self._session, None
        if session is not None:
            await _close(session)
        self._worker.close()

    async def _request(
        self,
        method: str,
        path: str,
        attempted: str,
        query: Mapping[str, str] | None,
        body: object,
        types: tuple[str, str],
        parse: Callable[[bytes], T],
        *,
        in_turn: bool = True,
        is_last: bool = False,
    ) -> T:
        session = await self._take_turn(attempted, in_turn=in_turn)
        session.users += 1
        try:
            with self._translating(session, attempted, method):
                with anyio.fail_after(self._read_settings().timeout_seconds):
                    response = await session.send(method, path, types, query=query, body=body)
                    async with response:
                        content = await response.read()
                        self._count(method, str(response.status))
                        await self._check(response, attempted)
                        return parse(content)
        except ApiUnauthorized:
            if is_last:
                raise
            self._give_up(session, is_refused=True)
        finally:
            session.users -= 1
            await self._leave(session)
        return await self._request(method, path, attempted, query, body, types, parse, in_turn=in_turn, is_last=True)

    def _give_up(self, session: _Session, *, is_refused: bool = False) -> None:
        """Give a session up; no effect on a newer session, renewed by another request with the same identity."""
        if self._session is session:
            self._session, self._is_refused = None, is_refused

    async def _leave(self, session: _Session) -> None:
        """Close a session that was given up, once the last request on the session has an answer."""
        if self._session is not session and not session.users:
            await _close(session)

    async def _take_turn(self, attempted: str, *, in_turn: bool = True) -> _Session:
        """A session with fresh credentials, after the wait of the rate limit."""
        settings = self._read_settings()
        rate = (settings.requests_per_second, settings.burst) if in_turn else URGENT
        wait = (self._rate if in_turn else self._urgent).reserve(
            anyio.current_time(), per_second=rate[0], burst=rate[1], patience=settings.timeout_seconds
        )
        if wait > settings.timeout_seconds:
            # The caller must not wait for so long.
            raise ApiBusy(
                attempted, HTTPStatus.TOO_MANY_REQUESTS, f"not again for {wait:.0f} s", retry_after_seconds=wait
            )
        if wait > 0:
            await anyio.sleep(wait)
        session = await self._hold_session()
        if anyio.current_time() - session.loaded_at < RENEW_SECONDS:
            return session
        session.loaded_at = anyio.current_time()  # a request in between goes on with the present token
        return session if await self._renew(session) else await self._hold_session()

    async def _hold_session(self) -> _Session:
        async with self._opening:
            if self._session is None:
                self._session = await self._open()
            return self._session

    async def _open(self) -> _Session:
        found = await self._credentials.load(self._worker, is_refused=self._is_refused)
        try:
            access = await self._worker.run(
                lambda: open_access(found.way), timeout_seconds=LOAD_SECONDS, what="reading certificates"
            )
        except (WorkerError, OSError, ValueError) as error:  # which cover the TLS library's errors
            raise CredentialsInvalid(self._credentials.where, str(error)) from error
        # The access has the environment's proxies: the library would look, in two threads, at each request.
        http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=access.tls), timeout=aiohttp.ClientTimeout(), read_bufsize=READ_BYTES
        )
        self._is_refused = False
        return _Session(found.way, access, found.authorization, http, anyio.current_time())

    async def _renew(self, session: _Session) -> bool:
        """Take over a replaced token; returns whether the session goes on, so False for a changed way."""
        try:
            found = await self._credentials.load(self._worker)
        except CredentialsInvalid as error:
            # The present credentials may still do.
            _log.warning("credentials_not_renewed", reason=str(error))
            return self._session is session
        session.authorization = found.authorization
        if found.way != session.way:
            self._give_up(session)
            await self._leave(session)
        return self._session is session

    async def _check(self, response: aiohttp.ClientResponse, attempted: str) -> None:
        if response.status < HTTPStatus.MULTIPLE_CHOICES:
            return
        content = await response.read()
        retry_after = parse_retry_after(response.headers.get("Retry-After", ""))
        refused = translate_answer(
            attempted, response.status, content, reason=response.reason, retry_after_seconds=retry_after
        )
        is_budget = isinstance(refused, ApiBusy) and refused.is_budget
        if retry_after is not None and not is_budget:
            for rate in (self._rate, self._urgent):
                rate.hold_back(anyio.current_time() + retry_after)
        raise refused

    def _count(self, verb: str, outcome: str) -> None:
        self.counts[ApiCall(verb=verb, outcome=outcome)] += 1

    @contextmanager
    def _translating(self, session: _Session, attempted: str, verb: str) -> Iterator[None]:
        try:
            yield
        except _TROUBLE as error:
            if isinstance(error, aiohttp.ClientSSLError):
                # A trust anchor may be replaced like a token, and was read when the way was opened.
                self._give_up(session)
            self._count(verb, NO_ANSWER)
            reason = str(error) or ("too slow" if isinstance(error, TimeoutError) else type(error).__name__)
            raise ApiUnreachable(session.access.server, attempted, reason) from error


def is_change(method: str, path: str) -> bool:
    """Whether others rely on the requested change: events only report, leases renew all the time, reviews ask."""
    collections = path.split("/")[-2:]
    return method != "GET" and not _UNNOTED & {*collections}


def _tell(method: str, body: object) -> str:
    """A patch's text for the audit log; whole objects are too long, and can be read in the cluster."""
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False) if method == "PATCH" else ""


async def _close(session: _Session) -> None:
    for response in session.watched:
        # The library closes the connection and wakes no reader: a watch would wait for the limit of silence.
        response.content.set_exception(aiohttp.ClientConnectionError("the connection was given up"))
    with anyio.CancelScope(shield=True):
        await session.http.close()


async def _read_lines(content: aiohttp.StreamReader, silence_seconds: float) -> AsyncGenerator[bytes, None]:
    """Lines up to the limit; the library's own reader gives up at 128 KiB, less than a pod may have."""
    rest = bytearray()
    seen = 0
    while True:
        end = rest.find(b"\n", seen)
        if end >= 0:
            line = bytes(rest[: end + 1])
            del rest[: end + 1]
            seen = 0
            yield line
            continue
        seen = len(rest)
        if seen > LINE_BYTES_MAX:
            raise ValueError(f"a line of a watch has more than {LINE_BYTES_MAX} bytes")
        with anyio.fail_after(silence_seconds):
            chunk = await content.readany()
        if not chunk:
            break
        rest += chunk
    if rest:
        yield bytes(rest)


def parse_document(content: bytes) -> Json:
    """The JSON object of an answer, or of a line of a watch.

    Raises:
        ValueError: the content is no JSON object.
    """
    try:
        document = json.loads(content)
    except RecursionError as error:
        raise ValueError("the answer is nested deeper than anything that makes sense") from error
    if not isinstance(document, dict):
        raise ValueError("the answer is no JSON object")  # noqa: TRY004 - translated like any other broken answer
    return document
