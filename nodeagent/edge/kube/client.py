"""One client for the API server: requests with a deadline and a turn, watches with a limit of silence.

Owns the connection, the credentials in use and their renewal, the rate, and the translation of everything that goes
wrong. Refuses to know any kind of object: paths and documents come from the modules beside it.
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
from nodeagent.edge.kube.rate_limit import RateLimit
from nodeagent.model.cluster import ApiCall

Json = dict[str, Any]

RENEW_SECONDS = 60.0
"""How long a token is used before its source is read again; the kubelet replaces files minutes before they end."""
RETRY_AFTER_MAX_SECONDS = 300.0
NO_ANSWER = "none"
LINE_BYTES_MAX = 16 << 20
"""Of one line of a watch; the API server takes no object that is a tenth as large."""
T = TypeVar("T")
_log = get_logger(component="kube")
_AT_ONCE = (100.0, 200)
"""Requests a second and at a time that pods wait for: as many as a node can start."""
_UNNOTED = frozenset({"events", "leases", "selfsubjectaccessreviews", "selfsubjectrulesreviews"})
_TROUBLE = (aiohttp.ClientError, OSError, TimeoutError, ValueError)
JSON = "application/json"
READ_BYTES = 2 << 20
"""Of an answer that may be there before it is taken."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """How patient, and how greedy."""

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
    """Requests under way."""
    watched: set[aiohttp.ClientResponse] = field(default_factory=set)

    async def send(
        self,
        method: str,
        path: str,
        types: tuple[str, str],
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
    ) -> aiohttp.ClientResponse:
        """The answer as soon as its head is there; `types` are those of the question and of the answer."""
        headers = {"Content-Type": types[0], "Accept": types[1], "User-Agent": f"nodeagent/{__version__}"}
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
    """Speaks JSON with one API server; belongs to the event loop's thread."""

    def __init__(self, credentials: Credentials, read_settings: Callable[[], ClientSettings] = ClientSettings) -> None:
        self._credentials, self._read_settings = credentials, read_settings
        self._worker = WorkerThread("API credentials")
        self._rate, self._urgent = RateLimit(), RateLimit()
        self._session: _Session | None = None
        self._is_refused = False
        """The server took the identity of the last session no more."""
        self._opening = anyio.Lock(fast_acquire=True)
        self.counts: Counter[ApiCall] = Counter()
        """How often each verb met with each outcome, since the agent started."""

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
        """One request and its answer; `attempted` says in words what it is for.

        `in_turn` is False for what a pod waits for: it is made at once, unless the server has asked for peace.

        Raises:
            KubeError: it did not succeed; a rejected identity was renewed and tried once more before that.
        """
        types = (content_type, accept)
        with noting("kubernetes", path, attempted, _tell(method, body)) if is_change(method, path) else nullcontext():
            return await self._request(method, path, attempted, query, body, types, _parse, in_turn=in_turn)

    async def fetch(self, path: str, parse: Callable[[bytes], T], *, attempted: str, query: Mapping[str, str]) -> T:
        """An answer that is too large for everything in it to be made; `parse` raises a `ValueError` of what is wrong.

        Raises:
            KubeError: it did not succeed; a rejected identity was renewed and tried once more before that.
        """
        types = (JSON, JSON)
        return await self._request("GET", path, attempted, query, None, types, parse)

    async def watch(
        self, path: str, *, attempted: str, query: Mapping[str, str], silence_seconds: float, accept: str = JSON
    ) -> AsyncGenerator[Json, None]:
        """The lines of a watch until the server ends it.

        Raises:
            KubeError: it was refused or broke, or said nothing for so long that its other end must be gone.
        """
        lines = self.watch_as(
            path, _parse, attempted=attempted, query=query, silence_seconds=silence_seconds, accept=accept
        )
        async with aclosing(lines):
            async for line in lines:
                yield line

    async def watch_as(
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
        """The same, each line as `parse` makes it, which raises a `ValueError` of what is wrong.

        `on_open` is called when the server has taken the watch, which may be long before it says anything.

        Raises:
            KubeError: it was refused or broke, or said nothing for so long that its other end must be gone.
        """
        session = await self._take_turn(attempted)
        session.users += 1
        try:
            with self._translating(session, attempted, "WATCH"):
                with anyio.fail_after(self._read_settings().timeout_seconds):
                    response = await session.send("GET", path, (JSON, accept), query=query)
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
        finally:
            session.watched.discard(response)
            response.close()

    async def read_namespace(self) -> str:
        """Where objects of ours go unless the settings say otherwise.

        Raises:
            CredentialsInvalid: the credentials do not answer.
        """
        read = self._credentials.read_namespace
        try:
            return await self._worker.run(read, timeout_seconds=LOAD_SECONDS, what="reading our namespace")
        except WorkerError as error:
            raise CredentialsInvalid(self._credentials.where, str(error)) from error

    async def aclose(self) -> None:
        """End the connections; the next request opens new ones with credentials read anew."""
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
        """Of many with the same identity the first gives it up: what it renewed is not for the next to give up."""
        if self._session is session:
            self._session, self._is_refused = None, is_refused

    async def _leave(self, session: _Session) -> None:
        """Who is on the way by an identity that was given up still gets an answer."""
        if self._session is not session and not session.users:
            await _close(session)

    async def _take_turn(self, attempted: str, *, in_turn: bool = True) -> _Session:
        """A session with fresh credentials, when it is this request's turn."""
        settings = self._read_settings()
        rate = (settings.requests_per_second, settings.burst) if in_turn else _AT_ONCE
        wait = (self._rate if in_turn else self._urgent).reserve(
            anyio.current_time(), per_second=rate[0], burst=rate[1], patience=settings.timeout_seconds
        )
        if wait > settings.timeout_seconds:
            # The caller has other work to do than to wait for so long.
            raise ApiBusy(
                attempted, HTTPStatus.TOO_MANY_REQUESTS, f"not again for {wait:.0f} s", retry_after_seconds=wait
            )
        if wait > 0:
            await anyio.sleep(wait)
        session = await self._hold_session()
        if anyio.current_time() - session.loaded_at < RENEW_SECONDS:
            return session
        session.loaded_at = anyio.current_time()  # whoever comes meanwhile goes on with what there is
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
        except (WorkerError, OSError, ValueError) as error:  # the TLS library's errors are among them
            raise CredentialsInvalid(self._credentials.where, str(error)) from error
        # What its environment says of proxies is in the access: the library would ask, in two threads, at each request.
        http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=access.tls), timeout=aiohttp.ClientTimeout(), read_bufsize=READ_BYTES
        )
        self._is_refused = False
        return _Session(found.way, access, found.authorization, http, anyio.current_time())

    async def _renew(self, session: _Session) -> bool:
        """Take over a token that was replaced; whether the session goes on, which it does not where the way changed."""
        try:
            found = await self._credentials.load(self._worker)
        except CredentialsInvalid as error:
            # The present ones may still do.
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
        retry_after = _parse_seconds(response.headers.get("Retry-After", ""))
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
                # An authority is replaced under us as tokens are, and was read when the way was opened.
                self._give_up(session)
            self._count(verb, NO_ANSWER)
            reason = str(error) or ("too slow" if isinstance(error, TimeoutError) else type(error).__name__)
            raise ApiUnreachable(session.access.server, attempted, reason) from error


def is_change(method: str, path: str) -> bool:
    """Whether others rely on what a request changes: events only tell, leases are renewed all the time, reviews ask."""
    collections = path.split("/")[-2:]
    return method != "GET" and not _UNNOTED & {*collections}


def _tell(method: str, body: object) -> str:
    """What a patch says; whole objects are long, and can be looked at where they are."""
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False) if method == "PATCH" else ""


async def _close(session: _Session) -> None:
    for response in session.watched:
        # The library closes the connection and tells no reader: a watch would wait until its silence is over.
        response.content.set_exception(aiohttp.ClientConnectionError("the connection was given up"))
    with anyio.CancelScope(shield=True):
        await session.http.close()


async def _read_lines(content: aiohttp.StreamReader, silence_seconds: float) -> AsyncGenerator[bytes, None]:
    """Lines up to the limit; the library's own reader gives up at 128 KiB, less than one pod may have."""
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


def _parse(content: bytes) -> Json:
    try:
        document = json.loads(content)
    except RecursionError as error:
        raise ValueError("the answer is nested deeper than anything that makes sense") from error
    if not isinstance(document, dict):
        raise ValueError("the answer is no JSON object")  # noqa: TRY004 - translated like any other broken answer
    return document


def _parse_seconds(text: str) -> float | None:
    return min(float(text), RETRY_AFTER_MAX_SECONDS) if text.isascii() and text.isdigit() else None
