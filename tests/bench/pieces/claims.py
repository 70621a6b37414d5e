"""What a pod with a claim waits for: its claim is read, durable in the journal, described to the runtime, and answered.

Asked over the registered socket as the kubelet's gRPC for Go asks, of a whole agent beside a stand-in API server. What
that takes to answer is in it; how long the same question takes a bare client is told beside. Memory is compared with
that of an agent that serves no claims, on the same GPUs beside the same server.
"""

import asyncio
import http.client
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from nodeagent.edge.kubelet.proto import dra_v1_pb2 as wire
from tests.bench.around.api_server import api_server
from tests.bench.around.node import bench_node
from tests.bench.rows import Row
from tests.fakes.apiserver import NODE
from tests.fakes.kube.server import TOKEN
from tests.support.wire.claim_kubelet import registered
from tests.support.wire.go_client import GoClient

ROUNDS, WARM = 300, 20
MEMORY_SETTLE_SECONDS = 8.0
DRIVER = "gpu.nvidia.com"
SERVICE = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
BY_CLAIMS = 'doors.rules=[{"gpus": ["all"], "door": "claims"}]'


def measure(rounds: int = ROUNDS) -> list[Row]:
    """One claim after the other, each put away before the next one comes."""
    with api_server() as api, bench_node() as node:
        kubeconfig = api.server.write_kubeconfig(node.directory / "kubeconfig")
        registry, plugins = node.directory / "registry", node.directory / "plugins"
        registry.mkdir()
        names = [f"c{number}" for number in range(rounds + WARM)]
        api.server.claims.update({name: _claim(number) for number, name in enumerate(names)})
        reach = [
            "gpus.source=simulated:dgx-h100",
            "kubernetes.enabled=true",
            f"kubernetes.kubeconfig={kubeconfig}",
            f"node.name={NODE}",
        ]
        on = ["claims.enabled=true", f"claims.plugins_dir={plugins}", f"claims.registry_dir={registry}", BY_CLAIMS]
        with node.running_agent(*_words(reach)) as agent:
            agent.wait_ready()
            time.sleep(MEMORY_SETTLE_SECONDS)
            without = agent.memory_mib("Pss")
        with node.running_agent(*_words([*reach, *on])) as agent:
            agent.wait_ready()
            agent.wait_until(lambda: '"registered":false' in agent.get("/api/v1/claims")[1].replace(" ", ""))
            time.sleep(MEMORY_SETTLE_SECONDS)
            claims = [wire.Claim(namespace="default", name=name, uid=f"uid-{name[1:]}") for name in names]
            millis = prepare_each(register(registry), claims)[WARM:]
            more = agent.memory_mib("Pss") - without
            read = _read(api.server.url, rounds)
    name = "Prepare of one claim, durable"
    return [
        Row(name, "ms", millis, limit=3.0),
        Row("of this, reading it at the stand-in", "ms", read),
        Row(f"{name}, slowest", "ms", millis, limit=10.0, limit_is_for=0.99),
        Row("claims on, more memory (PSS)", "MiB", [more], limit=4.0),
    ]


def _words(settings: list[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def register(registry: Path) -> Path:
    """As the kubelet does; answers with the socket on which claims are asked for."""

    async def ask() -> Path:
        async with registered(registry) as kubelet:
            return Path(kubelet.info.endpoint)

    return asyncio.run(ask())


def prepare_each(socket: Path, claims: Sequence[wire.Claim]) -> list[float]:
    """Milliseconds of each Prepare, one claim after the other."""
    millis = []
    kubelet = GoClient(socket)
    for claim in claims:
        question = wire.NodePrepareResourcesRequest(claims=[claim]).SerializeToString()
        began = time.perf_counter()
        told = kubelet.call(f"{SERVICE}/NodePrepareResources", question)
        millis.append(1000 * (time.perf_counter() - began))
        kubelet.flush()
        answer = wire.NodePrepareResourcesResponse.FromString(told).claims[claim.uid]
        assert answer.devices, answer.error
        end = wire.NodeUnprepareResourcesRequest(claims=[claim]).SerializeToString()
        told = kubelet.call(f"{SERVICE}/NodeUnprepareResources", end)
        kubelet.flush()
        assert not wire.NodeUnprepareResourcesResponse.FromString(told).claims[claim.uid].error
    kubelet.close()
    return millis


def _read(url: str, rounds: int) -> list[float]:
    """The same claims read by a client that does nothing else, over one connection."""
    millis = []
    server, token = http.client.HTTPConnection(urlsplit(url).netloc), {"Authorization": f"Bearer {TOKEN}"}
    for number in range(rounds + WARM):
        began = time.perf_counter()
        server.request("GET", f"/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c{number}", headers=token)
        answer = server.getresponse()
        assert answer.status == http.client.OK, answer.read()
        answer.read()
        millis.append(1000 * (time.perf_counter() - began))
    server.close()
    return millis[WARM:]


def _claim(number: int) -> dict[str, object]:
    result = {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": f"gpu-{number % 8}"}
    return {
        "metadata": {"namespace": "default", "name": f"c{number}", "uid": f"uid-{number}"},
        "status": {
            "reservedFor": [{"resource": "pods", "name": f"p{number}", "uid": f"pod-{number}"}],
            "allocation": {"devices": {"results": [result]}},
        },
    }
