"""What a request to an API server may meet: refusals, silence, credentials that end or cannot be read."""

import json
import os
from functools import partial
from pathlib import Path

import anyio
import pytest

from nodeagent.edge.kube.client import ClientSettings, KubeClient
from nodeagent.edge.kube.credentials import InClusterCredentials, Kubeconfig
from nodeagent.edge.kube.errors import (
    ApiBusy,
    ApiConflict,
    ApiFailed,
    ApiForbidden,
    ApiNotFound,
    ApiRefused,
    ApiUnauthorized,
    ApiUnreachable,
    CredentialsInvalid,
)
from nodeagent.model.cluster import ApiCall
from tests.component.edge_kube.harness import open_client, open_node
from tests.fakes.apiserver import NODE
from tests.support.waiting import hanging

IMPATIENT = ClientSettings(timeout_seconds=0.2, requests_per_second=1000, burst=100)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, ApiRefused),
        (401, ApiUnauthorized),
        (403, ApiForbidden),
        (404, ApiNotFound),
        (409, ApiConflict),
        (422, ApiRefused),
        (429, ApiBusy),
        (500, ApiFailed),
        (503, ApiFailed),
    ],
)
async def test_refusals_have_names(tmp_path: Path, status: int, error: type[ApiRefused]) -> None:
    """Each status is one class; the message says what was attempted and what the server said."""
    async with open_node(tmp_path) as (server, node):
        server.answer(status, times=2)
        with pytest.raises(error, match=f"cannot read node node-1: .*{status}: scripted {status}: "):
            await node.read_node()


@pytest.mark.parametrize("body", [b"", b"<html>gateway\n timeout</html>", b'{"message'])
async def test_a_refusal_without_a_message_is_readable(tmp_path: Path, body: bytes) -> None:
    """What stands before an API server answers with pages, or with nothing."""
    async with open_node(tmp_path) as (server, node):
        server.answer(502, body=body)
        with pytest.raises(ApiFailed) as caught:
            await node.read_node()
        assert "\n" not in str(caught.value)
        assert caught.value.message


@pytest.mark.parametrize(
    "body", [b'{"items": [', b"[]", b"{}", b'{"items": [{}], "metadata": {"resourceVersion": "1"}}']
)
async def test_half_an_answer_is_no_answer(tmp_path: Path, body: bytes) -> None:
    """A cut or senseless answer is a server that does not answer."""
    async with open_node(tmp_path) as (server, node):
        server.break_off(body)
        with pytest.raises(ApiUnreachable):
            await node.read_node()


async def test_a_slow_server_is_given_up(tmp_path: Path) -> None:
    """Past its deadline a request is an error, and the next one is served."""
    async with open_node(tmp_path, IMPATIENT) as (server, node):
        server.hang()
        with pytest.raises(ApiUnreachable, match="too slow: nodeagent keeps trying"):
            await node.read_node()
        assert (await node.read_node()).name == NODE


async def test_a_server_that_is_away_is_said_to_be_away(tmp_path: Path) -> None:
    """Nobody listens: the error names the address; when it is back, the same client goes on."""
    async with open_node(tmp_path) as (server, node):
        await node.read_node()
        await server.stop()
        with pytest.raises(ApiUnreachable, match=f"http://127.0.0.1:{server.port} does not answer"):
            await node.read_node()
        await server.start()
        assert (await node.read_node()).name == NODE


async def test_a_renewed_token_is_taken_up(tmp_path: Path) -> None:
    """The server no longer takes the old one: the file is read again, and the request goes through."""
    async with open_node(tmp_path, by_child=True) as (server, node):
        await node.read_node()
        server.token = "token-2"
        server.write_kubeconfig(tmp_path / "kubeconfig", token="token-2")
        assert (await node.read_node()).name == NODE


@pytest.mark.parametrize("spread_seconds", [0.0, 0.02])
async def test_a_token_that_is_renewed_fails_none_of_many_requests(tmp_path: Path, spread_seconds: float) -> None:
    """As when many claims are prepared at once: nobody's refusal ends what another has on the way."""
    path = f"/api/v1/nodes/{NODE}"
    async with open_client(tmp_path, by_child=True) as (server, client):
        await client.request("GET", path, attempted="begin")
        server.token = "token-2"
        server.write_kubeconfig(tmp_path / "kubeconfig", token="token-2")
        server.delays.extend(spread_seconds * (number % 5) for number in range(24))
        async with anyio.create_task_group() as tasks:
            for number in range(12):
                tasks.start_soon(partial(client.request, "GET", path, attempted=f"ask {number}", in_turn=False))
        assert client.counts[ApiCall(verb="GET", outcome="200")] == 13


async def test_the_server_decides_when_to_come_back(tmp_path: Path) -> None:
    """After a 429 with Retry-After no request is made before that time."""
    async with open_node(tmp_path) as (server, node):
        server.answer(429, headers={"Retry-After": "1"})
        with pytest.raises(ApiBusy) as caught:
            await node.read_node()
        assert caught.value.retry_after_seconds == 1
        before = anyio.current_time()
        await node.read_node()
        assert anyio.current_time() - before > 0.9


async def test_a_long_silence_is_not_waited_out(tmp_path: Path) -> None:
    """Asked to stay away for longer than a request may take, the client says so at once, and asks nothing."""
    async with open_node(tmp_path) as (server, node):
        server.answer(503, headers={"Retry-After": "3600"})
        with pytest.raises(ApiFailed):
            await node.read_node()
        with pytest.raises(ApiBusy, match="not again for 300 s"):
            await node.read_node()
        assert len(server.requests) == 1


async def test_who_was_turned_away_delays_nobody_afterwards(tmp_path: Path) -> None:
    """A scheduler asks hundreds of times a second while the server wants peace; when that is over, it is over."""
    settings = ClientSettings(timeout_seconds=0.5, requests_per_second=10, burst=2)
    async with open_node(tmp_path, settings) as (server, node):
        server.answer(503, headers={"Retry-After": "2"})
        with pytest.raises(ApiFailed):
            await node.read_node()
        for _ in range(200):
            with pytest.raises(ApiBusy):
                await node.read_node()
        await anyio.sleep(2)
        assert (await node.read_node()).name == NODE


async def test_credentials_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    """A kubeconfig that is gone says which one, and no request is made."""
    async with open_node(tmp_path, by_child=True) as (server, node):
        (tmp_path / "kubeconfig").unlink()
        with pytest.raises(CredentialsInvalid, match="kubeconfig"):
            await node.read_node()
        assert server.requests == []


async def test_a_token_is_read_again_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it ends, and without a refusal; one that cannot be read then leaves the present one in use."""
    monkeypatch.setattr("nodeagent.edge.kube.client.RENEW_SECONDS", 0.0)
    async with open_node(tmp_path, by_child=True) as (server, node):
        await node.read_node()
        server.token = "token-2"
        server.write_kubeconfig(tmp_path / "kubeconfig", token="token-2")
        await node.read_node()
        (tmp_path / "kubeconfig").unlink()
        assert (await node.read_node()).name == NODE
        assert len(server.requests) == 3, "no request was refused"


async def test_a_certificate_that_is_none_is_named(tmp_path: Path) -> None:
    """A trust anchor that the TLS library refuses is a matter of the credentials, not of the server."""
    path = tmp_path / "kubeconfig"
    async with open_node(tmp_path, by_child=True) as (server, node):
        document = json.loads(path.read_text())
        data = "bm8gY2VydGlmaWNhdGU="
        document["clusters"][0]["cluster"] = {"server": "https://127.0.0.1:1", "certificate-authority-data": data}
        path.write_text(json.dumps(document))
        with pytest.raises(CredentialsInvalid, match="kubeconfig"):
            await node.read_node()
        assert server.requests == []


async def test_an_address_that_is_none_is_named(tmp_path: Path) -> None:
    """A matter of the credentials too, whatever the libraries make of it."""
    path = tmp_path / "kubeconfig"
    async with open_node(tmp_path, by_child=True) as (_, node):
        document = json.loads(path.read_text())
        document["clusters"][0]["cluster"] = {"server": "https://[::1"}
        path.write_text(json.dumps(document))
        with pytest.raises(CredentialsInvalid, match="kubeconfig"):
            await node.read_node()


async def test_credentials_on_a_disk_that_hangs_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading them has a deadline like everything else: a child's, and those of what is read here."""
    path = tmp_path / "kubeconfig"
    os.mkfifo(path)
    monkeypatch.setattr("nodeagent.edge.kube.credentials.LOAD_SECONDS", 0.2)
    client = KubeClient(Kubeconfig(path))
    with pytest.raises(CredentialsInvalid, match=r"kubeconfig.* did not answer within 0.2 s and was killed"):
        await client.request("GET", "/api", attempted="ask")
    await client.aclose()
    with hanging() as hang:
        monkeypatch.setattr(InClusterCredentials, "_read", hang)
        client = KubeClient(InClusterCredentials({}, tmp_path))
        with pytest.raises(CredentialsInvalid, match="reading API credentials"):
            await client.request("GET", "/api", attempted="ask")
        await client.aclose()
        monkeypatch.setattr("nodeagent.edge.kube.client.LOAD_SECONDS", 0.05)
        monkeypatch.setattr(Kubeconfig, "read_namespace", hang)
        client = KubeClient(Kubeconfig(path))
        with pytest.raises(CredentialsInvalid, match="reading our namespace"):
            await client.read_namespace()
