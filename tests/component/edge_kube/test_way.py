"""The way to an API server: over TLS; what the environment says of it counts, once; a request takes no thread."""

import asyncio
import base64
import json
import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from nodeagent.edge.kube.client import KubeClient, parse_document
from nodeagent.edge.kube.credentials import Kubeconfig
from nodeagent.edge.kube.errors import ApiUnreachable, CredentialsInvalid, KubeError
from tests.component.edge_kube.harness import open_node
from tests.component.http.certificates import Authority, Certificate
from tests.fakes.apiserver import NODE, FakeApiServer
from tests.fakes.kube.server import TOKEN


@asynccontextmanager
async def a_proxy(port_of_server: list[int]) -> AsyncIterator[tuple[int, list[bytes]]]:
    """Passes requests on to one server; its port, and the heads of what it was asked."""
    heads: list[bytes] = []

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port_of_server[0])
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        back.write(heads[-1])
        writer.write(await there.readuntil(b"\r\n\r\n"))
        await back.drain()
        while chunk := await there.read(1 << 16):
            writer.write(chunk)
        for end in (writer, back):
            end.close()

    server = await asyncio.start_server(pass_on, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], heads


def forget_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


async def test_a_request_takes_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod may wait for it: what the environment says is asked when the way is opened, not each time."""
    forget_environment(monkeypatch)
    async with open_node(tmp_path) as (_, node):
        assert (await node.read_node()).name == NODE
        assert [one.name for one in threading.enumerate() if one.name.startswith("asyncio")] == []


async def test_a_netrc_file_is_none_of_our_business(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person's password for the server is not put in the place of the agent's own identity."""
    forget_environment(monkeypatch)
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login somebody password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    async with open_node(tmp_path) as (_, node):
        assert (await node.read_node()).name == NODE


async def test_a_proxy_of_the_environment_is_gone_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its own password, which the server is not told as ours; and not where it is not for this server."""
    forget_environment(monkeypatch)
    ports: list[int] = []
    async with a_proxy(ports) as (port, heads), open_node(tmp_path) as (server, node):
        ports.append(server.port)
        monkeypatch.setenv("http_proxy", f"http://who:secret@127.0.0.1:{port}")
        assert (await node.read_node()).name == NODE
        (head,) = heads
        assert head.startswith(f"GET {server.url}/api/v1/nodes?".encode())
        assert base64.b64encode(b"who:secret") in head
        assert b"Authorization: Bearer token-1" in head
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    async with open_node(tmp_path) as (_, node):
        assert (await node.read_node()).name == NODE
        assert len(heads) == 1


def write_kubeconfig(path: Path, server: str, authority: Path, own: Certificate | None, name: str) -> Path:
    """All certificates in the file itself, as clusters hand it out."""

    def encode(file: Path) -> str:
        return base64.b64encode(file.read_bytes()).decode()

    user = {"token": TOKEN}
    if own is not None:
        user |= {"client-certificate-data": encode(own.cert), "client-key-data": encode(own.key)}
    cluster = {"server": server, "certificate-authority-data": encode(authority), "tls-server-name": name}
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(json.dumps(document))
    return path


@pytest.mark.long
async def test_both_ends_show_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each that is another than the other end expects is an error; what was unpacked for it is gone."""
    forget_environment(monkeypatch)
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    (tmp_path / "other").mkdir()
    authority, other = Authority(tmp_path), Authority(tmp_path / "other")
    shown, own, foreign = authority.issue("kubernetes"), authority.issue("agent"), other.issue("agent")
    server = FakeApiServer()
    server.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.root.cert))
    server.tls.load_cert_chain(shown.cert, shown.key)
    server.tls.verify_mode = ssl.CERT_REQUIRED

    async def ask(trusted: Path, identity: Certificate | None, name: str) -> type[KubeError] | None:
        path = write_kubeconfig(tmp_path / "kubeconfig", server.url, trusted, identity, name)
        client = KubeClient(Kubeconfig(path))
        try:
            await client.request("GET", f"/api/v1/nodes/{NODE}", attempted="read the node")
        except KubeError as error:
            return type(error)
        finally:
            await client.aclose()
        return None

    async with server.running():
        assert await ask(authority.root.cert, own, "kubernetes") is None
        assert await ask(other.root.cert, own, "kubernetes") is ApiUnreachable
        assert await ask(authority.root.cert, own, "elsewhere") is ApiUnreachable
        assert await ask(authority.root.cert, foreign, "kubernetes") is ApiUnreachable
        assert await ask(authority.root.cert, None, "kubernetes") is ApiUnreachable
        assert await ask(authority.root.key, own, "kubernetes") is CredentialsInvalid
    assert list((tmp_path / "scratch").iterdir()) == []
    assert len(server.requests) == 1


@pytest.mark.parametrize("by_watch", [False, True])
async def test_an_authority_that_is_replaced_is_trusted_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, by_watch: bool
) -> None:
    """As when a cluster rotates its own: the kubelet brings the new one to the files that the agent has read once."""
    forget_environment(monkeypatch)
    server = FakeApiServer()

    def rotate(name: str) -> None:
        (tmp_path / name).mkdir()
        authority = Authority(tmp_path / name)
        shown = authority.issue("kubernetes")
        server.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        server.tls.load_cert_chain(shown.cert, shown.key)
        if server.port:
            write_kubeconfig(tmp_path / "kubeconfig", server.url, authority.root.cert, None, "kubernetes")

    rotate("old")
    async with server.running():
        write_kubeconfig(tmp_path / "kubeconfig", server.url, tmp_path / "old" / "ca.pem", None, "kubernetes")
        client = KubeClient(Kubeconfig(tmp_path / "kubeconfig"))
        ask = partial(client.request, "GET", f"/api/v1/nodes/{NODE}", attempted="read the node")
        await ask()
        await server.stop()
        rotate("new")
        await server.start()
        query = {"watch": "1", "resourceVersion": "1"}
        watch = client.watch("/api/v1/nodes", parse_document, attempted="watch", query=query, silence_seconds=5)
        with pytest.raises(ApiUnreachable, match="certificate verify failed"):
            await (anext(watch) if by_watch else ask())
        assert (await ask())["metadata"]["name"] == NODE
        await client.aclose()
