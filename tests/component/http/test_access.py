"""TLS, client certificates and passwords on real sockets of this machine."""

import base64
import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from anyio.streams.tls import TLSAttribute, TLSStream

from nodeagent.edge.http.access import CHECKS_WAITING_MAX, Access, open_access, parse_basic
from nodeagent.edge.http.capacity import Capacity
from nodeagent.edge.http.errors import WebConfigInvalid
from nodeagent.edge.http.listeners import open_tcp_listener
from nodeagent.edge.http.messages import TEXT, Answer, Request, Response
from nodeagent.edge.http.routes import Route, Routes
from nodeagent.edge.http.server import CAPACITY, ServerBounds
from nodeagent.edge.http.web_config import WebConfig
from tests.component.http.certificates import Authority
from tests.support.wire.http_server import make_server

HASH = "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"
RIGHT = "Authorization: Basic " + base64.b64encode(b"prometheus:U*U").decode() + "\r\n"
WRONG = "Authorization: Basic " + base64.b64encode(b"prometheus:no").decode() + "\r\n"
STRANGER = "Authorization: Basic " + base64.b64encode(b"nobody:U*U").decode() + "\r\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """One for all tests: keys cost time."""
    return Authority(tmp_path_factory.mktemp("certificates"))


async def _hello(_request: Request) -> Answer:
    return Response(b"hello", content_type=TEXT)


@asynccontextmanager
async def serve(access: Access, capacity: Capacity = CAPACITY) -> AsyncIterator[int]:
    """The port of a server with these rules."""
    with open_tcp_listener("127.0.0.1", 0, key="test") as listener:
        server = make_server(
            Routes([Route("GET", "/", _hello)]), access=access, bounds=ServerBounds(connections=capacity)
        )
        async with server.serving(listener):
            yield listener.getsockname()[1]


async def ask(port: int, headers: str = "", tls: ssl.SSLContext | None = None) -> tuple[int, str]:
    """Status and whole text of one answer."""
    plain = await anyio.connect_tcp("127.0.0.1", port)
    async with plain:
        stream: Any = plain
        if tls is not None:
            stream = await TLSStream.wrap(
                plain, hostname="127.0.0.1", ssl_context=tls, standard_compatible=False, server_side=False
            )
        await stream.send(f"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n".encode())
        text = b""
        with anyio.fail_after(20):
            try:
                while True:
                    text += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                pass
    return int(text.split()[1]), text.decode()


def write(directory: Path, text: str) -> Path:
    """A web configuration file."""
    file = directory / "web.yaml"
    file.write_text(text)
    return file


async def open_file(file: Path, errors: list[str] | None = None) -> Access:
    """Its rules; read in a thread, as the agent reads them before its loop runs."""
    return await to_thread.run_sync(lambda: open_access(file, on_error=(errors if errors is not None else []).append))


async def test_passwords_open_the_door_and_nothing_else_does(tmp_path: Path) -> None:
    """401 with the question for none, a wrong one, an unknown user; the hash itself is never a password."""
    access = await open_file(write(tmp_path, f"basic_auth_users:\n  prometheus: {HASH}\n"))
    async with serve(access) as port:
        for headers in ("", WRONG, STRANGER, "Authorization: Bearer abc\r\n"):
            status, text = await ask(port, headers)
            assert status == 401
            assert 'WWW-Authenticate: Basic realm="nodeagent"' in text
        assert (await ask(port, RIGHT))[0] == 200
        assert (await ask(port, RIGHT))[0] == 200


async def test_a_password_is_checked_once_and_a_flood_of_guesses_is_turned_away(tmp_path: Path) -> None:
    """Who is known is served at once while others guess; guesses beyond a few get 503."""
    access = await open_file(write(tmp_path, f"basic_auth_users:\n  prometheus: {HASH}\n"))
    authorization = {"authorization": RIGHT.split(": ", 1)[1].strip()}
    assert await access.check(authorization, None) is None
    statuses: list[int] = []

    async def guess(number: int) -> None:
        encoded = base64.b64encode(b"prometheus:guess %d" % number).decode()
        answer = await access.check({"authorization": f"Basic {encoded}"}, None)
        assert answer is not None
        statuses.append(answer.status)

    async with anyio.create_task_group() as tasks:
        for number in range(CHECKS_WAITING_MAX + 5):
            tasks.start_soon(guess, number)
        await anyio.lowlevel.checkpoint()
        assert await access.check(authorization, None) is None
    access.close()
    assert sorted(statuses) == [401] * CHECKS_WAITING_MAX + [503] * 5


async def test_a_check_that_hangs_opens_no_door(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that does not come back is a 503, not an open server."""
    monkeypatch.setattr("nodeagent.edge.http.access.CHECK_SECONDS", 0.05)
    go_on = threading.Event()

    def hang(_password: bytes, _hashed: bytes) -> bool:
        return go_on.wait(20)

    access = Access(WebConfig(users={"prometheus": HASH}), None, hang)
    answer = await access.check({"authorization": RIGHT.split(": ", 1)[1].strip()}, None)
    go_on.set()
    access.close()
    assert answer is not None
    assert answer.status == 503


async def test_old_passwords_are_forgotten_for_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered is bounded; who was forgotten is checked again."""
    monkeypatch.setattr("nodeagent.edge.http.access.REMEMBERED_MAX", 1)
    access = Access(WebConfig(users={"a": HASH, "b": HASH}), None, lambda _password, _hashed: True)
    for user in ("a", "b", "a"):
        encoded = base64.b64encode(f"{user}:x".encode()).decode()
        assert await access.check({"authorization": f"Basic {encoded}"}, None) is None
        assert len(access._remembered) == 1
    access.close()


@pytest.mark.parametrize("header", ["Basic", "Basic ???", "Basic " + base64.b64encode(b"nocolon").decode(), "Digest x"])
def test_what_is_no_basic_authorization_is_none(header: str) -> None:
    """Malformed headers are as good as no header."""
    assert parse_basic(header) is None


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["nothing", "half a greeting"])
async def test_a_crowd_that_shakes_no_hand_makes_room(tmp_path: Path, authority: Authority, said: bytes) -> None:
    """Encrypted connections are counted from the start, and the oldest is closed wherever it is."""
    certificate = authority.issue("node")
    text = f"tls_server_config: {{cert_file: {certificate.cert}, key_file: {certificate.key}}}\n"
    access = await open_file(write(tmp_path, text))
    async with serve(access, Capacity(4, 4)) as port, AsyncExitStack() as stack:
        crowd = []
        for _ in range(12):
            crowd.append(await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", port)))
            await crowd[-1].send(said)
        status, _ = await ask(port, tls=ssl.create_default_context(cafile=authority.root.cert))
        assert status == 200
        with anyio.fail_after(20), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await crowd[0].receive()


async def test_tls_is_served_and_plain_text_is_not(tmp_path: Path, authority: Authority) -> None:
    """A client that trusts the authority gets its answer with the configured headers; a plain one gets none."""
    certificate = authority.issue("node")
    text = f"tls_server_config: {{cert_file: {certificate.cert}, key_file: {certificate.key}}}\n"
    headers = "http_server_config: {headers: {X-Frame-Options: deny}}\n"
    access = await open_file(write(tmp_path, text + headers))
    async with serve(access) as port:
        status, answer = await ask(port, tls=ssl.create_default_context(cafile=authority.root.cert))
        with pytest.raises(IndexError):
            await ask(port)
    assert status == 200
    assert "X-Frame-Options: deny" in answer


async def test_a_replaced_certificate_is_shown_to_the_next_client(tmp_path: Path, authority: Authority) -> None:
    """Rotation without restart; files that do not fit leave the old ones in force and say so once."""
    first, second = authority.issue("first"), authority.issue("second")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_bytes(first.cert.read_bytes())
    key.write_bytes(first.key.read_bytes())
    errors: list[str] = []
    access = await open_file(write(tmp_path, f"tls_server_config: {{cert_file: {cert}, key_file: {key}}}\n"), errors)
    client = ssl.create_default_context(cafile=authority.root.cert)

    async def see(port: int) -> str:
        stream = await anyio.connect_tcp("127.0.0.1", port)
        async with await TLSStream.wrap(
            stream, hostname="127.0.0.1", ssl_context=client, standard_compatible=False, server_side=False
        ) as encrypted:
            shown = encrypted.extra(TLSAttribute.peer_certificate)
        return str(shown).partition("'commonName', '")[2].partition("'")[0]

    async with serve(access) as port:
        assert await see(port) == "first"
        cert.write_bytes(second.cert.read_bytes())
        assert await see(port) == "first"
        assert await see(port) == "first"
        assert len(errors) == 1
        key.write_bytes(second.key.read_bytes())
        assert await see(port) == "second"
    assert "cannot load" in errors[0]


async def test_only_a_client_with_an_allowed_certificate_is_served(tmp_path: Path, authority: Authority) -> None:
    """No certificate: no connection; one of another name: 403."""
    server, good, other = (authority.issue(name) for name in ("server", "prometheus", "other"))
    text = (
        f"tls_server_config: {{cert_file: {server.cert}, key_file: {server.key}, client_ca_file: {authority.root.cert},"
        " client_auth_type: RequireAndVerifyClientCert, client_allowed_sans: [prometheus]}\n"
    )

    def client(cert: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=authority.root.cert)
        if cert is not None:
            context.load_cert_chain(cert, key)
        return context

    async with serve(await open_file(write(tmp_path, text))) as port:
        assert (await ask(port, tls=client(good.cert, good.key)))[0] == 200
        assert (await ask(port, tls=client(other.cert, other.key)))[0] == 403
        with pytest.raises((ssl.SSLError, IndexError)):
            await ask(port, tls=client())


@pytest.mark.parametrize("broken", ["missing", "not PEM"])
async def test_certificates_that_cannot_be_loaded_are_refused_at_start(tmp_path: Path, broken: str) -> None:
    """With the names of the files, before anything is served."""
    if broken == "not PEM":
        (tmp_path / "a.pem").write_text("nothing")
        (tmp_path / "a.key").write_text("nothing")
    file = write(tmp_path, "tls_server_config: {cert_file: a.pem, key_file: a.key, cipher_suites: []}\n")
    with pytest.raises(WebConfigInvalid, match=r"cannot load .*a\.pem"):
        await open_file(file)
