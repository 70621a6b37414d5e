"""The real API server as one under test: what the contract asks of it besides requests."""

import asyncio
import ssl
from collections.abc import Mapping
from pathlib import Path

import aiohttp

from tests.support.wire.api_servers import NAMESPACE, ApiServerUnderTest

_BUDGETS = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def render_api_server(
    url: str, etcd_url: str, tokens: Mapping[str, str], authority: Path, scratch: Path
) -> ApiServerUnderTest:
    """The server at `url`; `tokens` are those of an administrator and of a stranger."""

    async def protect(application: str) -> None:
        await write_budget(server, application)

    async def forget() -> None:
        await compact(etcd_url, await server.read_version())

    server = ApiServerUnderTest(
        url=url,
        token=tokens["admin"],
        scratch=scratch,
        tls=ssl.create_default_context(cafile=str(authority)),
        authority=authority,
        stranger=tokens["stranger"],
        protect=protect,
        forget=forget,
    )
    return server


async def write_budget(server: ApiServerUnderTest, application: str) -> None:
    """A budget that allows no disruption, or a second one; no controller is needed to say so."""
    name = application
    if (await server.ask("GET", f"{_BUDGETS}/{name}")).status == 200:
        name = f"{application}-2"
    document = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": application}}},
    }
    made = await server.ask("POST", _BUDGETS, document)
    assert made.status == 201, made.content
    status = {
        "observedGeneration": 1,
        "disruptionsAllowed": 0,
        "currentHealthy": 1,
        "desiredHealthy": 1,
        "expectedPods": 1,
    }
    written = await server.ask("PUT", f"{_BUDGETS}/{name}/status", made.document | {"status": status})
    assert written.status == 200, written.content


async def compact(etcd_url: str, version: str) -> None:
    async with aiohttp.ClientSession() as http:
        body = {"revision": version, "physical": True}
        async with http.post(f"{etcd_url}/v3/kv/compaction", json=body) as response:
            assert response.status == 200, await response.text()


async def install(server: ApiServerUnderTest, definition: Mapping[str, object], path: str) -> None:
    """Have a kind defined, and wait until it is served at a path."""
    made = await server.ask("POST", _CRDS, definition)
    assert made.status in {201, 409}, made.content
    while (await server.ask("GET", path)).status != 200:  # noqa: ASYNC110 - a far process
        await asyncio.sleep(0.1)
