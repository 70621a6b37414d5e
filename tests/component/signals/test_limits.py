"""What a whole node asks of the API server: its GPUs all fail at once, and then nothing happens."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.components.cluster.component import Cluster
from nodeagent.components.labeler.component import Labeler, LabelSinks
from nodeagent.components.signals.component import FaultSinks, Signals
from nodeagent.components.signals.node_conditions_task import GATHER_SECONDS, NodeConditions
from nodeagent.config.sections.cluster import LabelsSettings, SignalsSettings
from nodeagent.config.sections.repairers import NodeConditionSettings
from nodeagent.edge.kube.client import ClientSettings, KubeClient
from nodeagent.edge.kube.node import KubeNode
from nodeagent.edge.kube.pods import KubePodStatus
from tests.component.health.health_node import Node
from tests.component.labeler.harness import FakeFacts
from tests.fakes.apiserver import NODE, FakeApiServer
from tests.support.wire.given_credentials import GivenCredentials
from tests.unit.rules.test_signals import make_pod, make_table

pytestmark = pytest.mark.virtual_time

GPUS, PODS = 8, 64
NPD = NodeConditionSettings(type="GPUProblem", true_means="faulty")


async def identify() -> None:
    """Every pod has a name."""


class WholeNode:
    """A simulated node with its GPUs, health, and all parts that write to the API server."""

    def __init__(self, tmp_path: Path, signals: SignalsSettings) -> None:
        self.node = Node(tmp_path)
        settings = replace(self.node.live.now, signals=signals, labels=LabelsSettings(sinks=("node",)))
        self.node.live.replace(settings)
        self.server = FakeApiServer()
        self.path = tmp_path / "kubeconfig"

    @asynccontextmanager
    async def running(self) -> AsyncIterator["WholeNode"]:
        node, live = self.node, self.node.live
        async with self.server.running(), node.running():
            client = KubeClient(GivenCredentials(self.server.write_kubeconfig(self.path)), ClientSettings)
            api = KubeNode(client, NODE, node.clock, Random(1))
            shared = (node.bus, node.conditions, node.clock, live)
            parts = (
                Cluster(*shared, api, rng=Random(1)),
                Labeler(*shared, FakeFacts(), LabelSinks(api, {})),
                Signals(*shared, FaultSinks(api, KubePodStatus(client)), NODE, identify),
                NodeConditions(node.bus, node.conditions, live, api, rng=Random(1)),
            )
            async with AsyncExitStack() as stack, anyio.create_task_group() as tasks:
                stack.push_async_callback(client.aclose)
                for part in parts:
                    run: Any = part.run
                    await tasks.start(lambda run=run, *, task_status: run(task_status=task_status))
                await anyio.sleep(60)
                yield self
                tasks.cancel_scope.cancel()

    def take_counts(self) -> Counter[str]:
        """Requests since the last look, by kind."""
        found, self.server.requests = self.server.requests, []
        return Counter(find_kind(method, path) for method, path in found)

    def hold(self) -> None:
        """Each pod has a time slice of a GPU."""
        gpus = [device.gpu for device in self.node.report.devices]
        pods = [make_pod(f"p{number}") for number in range(PODS)]
        for pod in pods:
            self.server.pods[pod.name] = {
                "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
                "spec": {"nodeName": NODE},
                "status": {},
            }
        held = ((pod, f"{gpus[number % GPUS]}::{number}") for number, pod in enumerate(pods))
        self.node.bus.publish_state(make_table(*held), source="test")

    async def break_gpus(self, xid: int) -> None:
        for index in range(GPUS):
            await self.node.break_it("xid", str(xid), str(index))


def find_kind(method: str, path: str) -> str:
    what = "pod" if "/ml/" in path else "node"
    if path.endswith("/events"):
        return f"event on a {what}"
    return f"{method} {what}{' status' if path.endswith('/status') else ''}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("xid", "label_patches", "node_events"),
    [(79, 1, {"GPULost": GPUS, "GPUUnhealthy": GPUS}), (95, 2, {"GPUUnhealthy": GPUS})],
)
async def test_a_fault_of_all_gpus_is_an_event_for_each_pod_and_a_patch_of_the_status(
    tmp_path: Path, xid: int, label_patches: int, node_events: dict[str, int]
) -> None:
    """Also where the driver's words come one by one; before and after it nothing is asked for."""
    stage = WholeNode(tmp_path, SignalsSettings())
    async with stage.running():
        stage.hold()
        stage.take_counts()
        await anyio.sleep(60)
        assert stage.take_counts() == Counter()
        await stage.break_gpus(xid)
        await anyio.sleep(10)
        counts = stage.take_counts()
        # The labels of two states that follow one another closely are one patch.
        assert 1 <= counts.pop("PATCH node") <= label_patches
        assert counts == {
            "event on a pod": PODS,
            "event on a node": sum(node_events.values()),
            "PATCH node status": 1,
        }
        told = [each for each in stage.server.events if each["regarding"]["kind"] == "Pod"]
        assert len({each["regarding"]["uid"] for each in told}) == PODS
        others = Counter(each["reason"] for each in stage.server.events if each["regarding"]["kind"] == "Node")
        assert others == node_events
        await anyio.sleep(60)
        assert stage.take_counts() == Counter()


@pytest.mark.slow
@pytest.mark.parametrize("xid", [79, 95])
async def test_conditions_that_the_settings_ask_for_are_a_patch_each(tmp_path: Path, xid: int) -> None:
    """One for each pod, and one for the node's condition; another when the driver says something else of the GPUs."""
    stage = WholeNode(tmp_path, SignalsSettings(pod_condition=True, node_conditions=(NPD,)))
    async with stage.running():
        stage.hold()
        stage.take_counts()
        await stage.break_gpus(xid)
        await anyio.sleep(2 * GATHER_SECONDS)
        counts = stage.take_counts()
        assert (counts["event on a pod"], counts["PATCH pod status"], counts["PATCH node status"]) == (PODS, PODS, 2)
        await anyio.sleep(60)
        assert stage.take_counts()["PATCH node status"] <= 1
        await anyio.sleep(60)
        assert stage.take_counts() == Counter()
