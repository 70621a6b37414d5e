"""Stands between the agent and the real API server, passes everything on, and breaks what a scenario asks it to.

It ends TLS with the API server's own certificate, so that clients verify it as they would the server. One request a
connection: it needs to understand no more of HTTP than where a request's head ends.
"""

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.integration.cluster.control import Cluster

BLOCK = 65536
WATCH = "WATCH"


@dataclass(frozen=True, slots=True)
class Seen:
    """One request; a watch has a method of its own, for it is what most rules tell apart."""

    method: str
    path: str
    at_seconds: float


class Passage:
    """One connection: the client's side, and the request that came on it."""

    def __init__(self, client: ssl.SSLSocket, head: bytes, body: bytes, upstream: Callable[[], ssl.SSLSocket]) -> None:
        self.client, self._head, self._body, self._open = client, head, body, upstream
        self.is_frozen = threading.Event()

    def pass_on(self) -> None:
        """What the real server says, until it says no more or the passage is frozen."""
        lines = self._head.split(b"\r\n")
        kept = [line for line in lines[1:] if not line.lower().startswith((b"connection:", b"accept-encoding:"))]
        with self._open() as server:
            server.sendall(b"\r\n".join([lines[0], *kept, b"Connection: close"]) + b"\r\n\r\n" + self._body)
            while block := server.recv(BLOCK):
                if self.is_frozen.is_set():
                    hold(self.client)
                    return
                self.client.sendall(block)

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        given = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close"}
        lines = [f"HTTP/1.1 {status} {http.client.responses.get(status, '')}"]
        lines += [f"{key}: {value}" for key, value in (given | (headers or {})).items()]
        self.client.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)


Act = Callable[[Passage], None]


@dataclass(slots=True)
class Rule:
    """What happens to requests that fit, for so many of them."""

    fits: Callable[[Seen], bool]
    act: Act
    left: int
    met: threading.Event = field(default_factory=threading.Event)


class ApiProxy:
    """Serves until it is closed; `seen` is every request in the order of arrival."""

    def __init__(self, cluster: Cluster) -> None:
        certs = cluster.layout.certs
        self._upstream = cluster.state.ports.api
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certs / "apiserver.crt", certs / "apiserver.key")
        self._trust = ssl.create_default_context(cafile=str(certs / "ca.crt"))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.seen: list[Seen] = []
        self._rules: list[Rule] = []
        self._open: set[Passage] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True, name="API proxy").start()

    def break_next(self, fits: Callable[[Seen], bool], act: Act, *, times: int = 1) -> Rule:
        """Have the next requests that fit meet with this."""
        rule = Rule(fits, act, times)
        with self._lock:
            self._rules.append(rule)
        return rule

    def freeze_watches(self) -> None:
        """From now on the watches that stand say nothing and end never: a connection whose other end is gone."""
        with self._lock:
            for passage in self._open:
                passage.is_frozen.set()

    def list_writes(self) -> list[Seen]:
        return [each for each in list(self.seen) if each.method not in ("GET", WATCH)]

    def close(self) -> None:
        """Accept nothing more; what is open ends with the process or its client."""
        self._listener.shutdown(socket.SHUT_RDWR)  # whoever waits in `accept` does not hear of a close
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), self._context.wrap_socket(connection, server_side=True) as client:
            head, body = read_request(client)
            if head:
                passage = Passage(client, head, body, self._connect)
                self._handle(passage, parse_head(head))

    def _handle(self, passage: Passage, seen: Seen) -> None:
        with self._lock:
            self.seen.append(seen)
            rule = next((each for each in self._rules if each.left and each.fits(seen)), None)
            if rule is not None:
                rule.left -= 1
            if seen.method == WATCH:
                self._open.add(passage)
        try:
            if rule is None:
                passage.pass_on()
            else:
                rule.met.set()
                rule.act(passage)
        finally:
            with self._lock:
                self._open.discard(passage)

    def _connect(self) -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", self._upstream))
        return self._trust.wrap_socket(plain, server_hostname="127.0.0.1")


@contextmanager
def running_proxy(cluster: Cluster) -> Iterator[ApiProxy]:
    """One proxy, closed with the block."""
    proxy = ApiProxy(cluster)
    try:
        yield proxy
    finally:
        proxy.close()


def read_request(client: socket.socket) -> tuple[bytes, bytes]:
    """Head and body of one request; empty when the client hung up."""
    content = b""
    while b"\r\n\r\n" not in content:
        block = client.recv(BLOCK)
        if not block:
            return b"", b""
        content += block
    head, _, body = content.partition(b"\r\n\r\n")
    length = next(
        (int(line.partition(b":")[2]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
    )
    while len(body) < length and (block := client.recv(BLOCK)):
        body += block
    return head, body


def parse_head(head: bytes) -> Seen:
    """What a request asks for."""
    method, path, _ = head.decode("latin-1").split(" ", 2)
    return Seen(WATCH if "watch=1" in path else method, path, time.monotonic())


# What can be done to a request ---------------------------------------------------------------------------------------


def refuse(status: int, message: str = "refused by the proxy", headers: dict[str, str] | None = None) -> Act:
    """An answer of the API server's form that is no success."""
    document = {"kind": "Status", "status": "Failure", "message": message, "code": status}
    return lambda passage: passage.answer(status, json.dumps(document).encode(), headers)


def delay(seconds: float) -> Act:
    """The real answer, late."""

    def act(passage: Passage) -> None:
        time.sleep(seconds)
        passage.pass_on()

    return act


def leave_open(passage: Passage) -> None:
    """No answer and no end: the other side's machine has vanished."""
    hold(passage.client)


def tear(passage: Passage) -> None:
    """Half an answer, then the end."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
    passage.client.sendall(head + b'{"kind": "NodeList", "items": [')


def expire(passage: Passage) -> None:
    """A watch that says that what it was asked to begin with is no longer kept."""
    status = {"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410, "message": "too old"}
    passage.answer(200, json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")


def hold(client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while client.recv(BLOCK):
            pass
