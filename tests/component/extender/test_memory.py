"""What strangers send to the extender's port costs it no more memory than the chart gives it."""

import io
import json
import resource
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import anyio
import pytest
import yaml

from tests.component.extender.harness import capacity, open_server
from tests.component.extender.test_program import ask, run_extender
from tests.support.scheduling import limit

CHART = Path(__file__).parents[3] / "deploy/chart/values.yaml"
LARGE = 30_000_000
POD = {"metadata": {"name": "p", "namespace": "default", "uid": "made-up"}, "spec": {"containers": []}}


def read_limit() -> int:
    """Bytes that the chart gives the extender's container."""
    text = yaml.safe_load(CHART.read_text())["extender"]["resources"]["limits"]["memory"]
    return int(text.removesuffix("Mi")) << 20


def list_attacks() -> Iterator[bytes]:
    """Each as long as it may be, and made of what weighs the most once it is read."""
    pod = json.dumps(POD).encode()
    for each in (b'"n"', b'""', b'"made-up-name"'):
        yield b'{"Pod":%s,"NodeNames":[%s]}' % (pod, b",".join([each] * (LARGE // (len(each) + 1))))
    yield b'{"Pod":%s,"Nodes":{"items":[%s]}}' % (pod, b",".join([b"{}"] * (LARGE // 3)))
    item = b'{"metadata":{"name":"n"}}'
    yield b'{"Pod":%s,"Nodes":{"items":[%s]}}' % (pod, b",".join([item] * (LARGE // (len(item) + 1))))
    keys = b",".join(b'"%x":1' % number for number in range(LARGE // 10))
    yield b'{"Pod":%s,"NodeNames":["n"],%s}' % (pod, keys)
    containers = b",".join([b"{}"] * (LARGE // 3))
    yield b'{"Pod":{"metadata":%s,"spec":{"containers":[%s]}},"NodeNames":["n"]}' % (
        json.dumps(POD["metadata"]).encode(),
        containers,
    )


async def send_all(url: str, body: bytes, times: int) -> None:
    """So often at once; what is answered is no matter here, that an answer comes is."""
    async with aiohttp.ClientSession() as session, anyio.create_task_group() as tasks:

        async def send(verb: str) -> None:
            async with session.post(f"{url}scheduler/{verb}", data=io.BytesIO(body)) as answer:
                assert answer.status in {200, 400, 413, 503}
                await answer.read()

        for number in range(times):
            tasks.start_soon(send, ("predicates", "filter", "prioritize")[number % 3])


@pytest.mark.nightly
async def test_no_question_takes_more_memory_than_the_chart_gives(tmp_path: Path) -> None:
    """Thirty megabytes of whatever weighs the most, nine at once: it lives on, and the next pod is placed.

    Held to the chart's limit by the kernel, as the process would be in its pod.
    """
    async with open_server() as server:
        server.put_node("n", capacity=capacity())
        pod = server.put_pod("a", limit(30, 4))
        words = ("extender.leader_election=false", "extender.verbs=[predicates, filter, prioritize]")
        async with run_extender(server, tmp_path, *words) as extender:
            resource.prlimit(extender.process.pid, resource.RLIMIT_DATA, (read_limit(), read_limit()))
            url = (await extender.wait_logged("extender_started"))["url"]
            await extender.wait_logged("extender_ready")
            for body in list_attacks():
                await send_all(url, body, 9)
            assert (await ask(url, pod, ["n"]))["NodeNames"] == ["n"]
            status = await anyio.Path(f"/proc/{extender.process.pid}/status").read_text()
            peak = next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM:"))
            assert peak < read_limit()


@pytest.mark.nightly
async def test_thirty_megabytes_of_whole_nodes_are_answered(tmp_path: Path) -> None:
    """Five thousand nodes as kube-scheduler sends them without nodeCacheCapable, three questions at once."""
    names = [f"node-{number}" for number in range(5000)]
    async with open_server() as server:
        for name in names:
            server.put_node(name, capacity=capacity())
        pods = [server.put_pod(f"p{number}", limit(30, 4)) for number in range(3)]
        items = [{"metadata": {"name": name, "annotations": {"images": "x" * 6000}}} for name in names]
        async with run_extender(server, tmp_path, "extender.leader_election=false") as extender:
            resource.prlimit(extender.process.pid, resource.RLIMIT_DATA, (read_limit(), read_limit()))
            url = (await extender.wait_logged("extender_started"))["url"]
            await extender.wait_logged("extender_ready")
            found: list[str] = []
            async with aiohttp.ClientSession() as session, anyio.create_task_group() as tasks:

                async def send(pod: object) -> None:
                    body = json.dumps({"Pod": pod, "Nodes": {"items": items}}).encode()
                    assert len(body) > LARGE
                    async with session.post(f"{url}scheduler/predicates", data=io.BytesIO(body)) as answer:
                        told = await answer.json()
                    found.extend(item["metadata"]["name"] for item in told["Nodes"]["items"])

                for pod in pods:
                    tasks.start_soon(send, pod)
            assert len(found) == 3
