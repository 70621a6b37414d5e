"""Slices told by a whole agent, and nothing of them where claims are off."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from nodeagent.app.control import Control
from nodeagent.app.services import Services
from nodeagent.app.wiring.cluster import ClusterWiring
from nodeagent.app.wiring.slices import SlicesWiring
from nodeagent.config.live import LiveSettings
from nodeagent.config.load import load_settings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.clock import SystemClock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.gates import Gates
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.model.conditions import CATALOGUE
from tests.fakes.apiserver import NODE, FakeApiServer
from tests.support.programs.agent_process import AgentProcess, running_agent


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(FakeApiServer().running()) as server:
        yield server


@pytest.fixture
def node(server: FakeApiServer) -> Iterator[AgentProcess]:
    """A simulated node of which all GPUs are given by claims."""
    with tempfile.TemporaryDirectory(prefix="na-") as name:
        directory = Path(name)
        kubeconfig = server.write_kubeconfig(directory / "kubeconfig")
        configuration = directory / "config.yaml"
        configuration.write_text(
            f"claims: {{enabled: true, plugins_dir: {directory}/plugins, registry_dir: {directory}/registry}}\n"
            f"kubernetes: {{kubeconfig: {kubeconfig}}}\nnode: {{name: {NODE}}}\n"
            "gpus: {source: 'simulated:dgx-h100'}\ndevice_plugin: {enabled: false}\n"
            "doors: {rules: [{gpus: all, door: claims}]}\n"
        )
        with running_agent(directory, "--config", str(configuration)) as agent:
            yield agent


def test_a_whole_agent_tells_schedulers_of_its_devices(server: FakeApiServer, node: AgentProcess) -> None:
    """All GPUs, and what befalls one of them."""
    components = "/api/v1/components"
    node.wait_until(components, lambda _: bool(server.slices), "and no slices came")
    (document,) = server.slices.values()
    assert [one["name"] for one in document["spec"]["devices"]] == [f"gpu-{index}" for index in range(8)]
    assert document["metadata"]["ownerReferences"][0]["uid"] == f"uid-of-{NODE}"
    node.inject("lost", "3")
    node.wait_until(components, lambda _: "taints" in str(server.slices), "and no taint came")
    (document,) = server.slices.values()
    assert [bool(one.get("taints")) for one in document["spec"]["devices"]] == [index == 3 for index in range(8)]


@pytest.mark.parametrize(
    ("words", "parts", "codes"),
    [
        (("claims.enabled=true",), [], {"slices-not-written"}),
        (("claims.enabled=true", "kubernetes.kubeconfig=/absent"), ["slices"], set()),
    ],
)
async def test_without_an_api_server_there_is_nobody_to_tell(
    words: tuple[str, ...], parts: list[str], codes: set[str]
) -> None:
    live = LiveSettings(load_settings(environ={}, overrides=words).settings)
    clock = SystemClock()
    bus = Bus(clock)
    conditions = Conditions(bus, clock, CATALOGUE)

    def no_control() -> Control:
        raise AssertionError("nothing is built here")

    async def identify_nobody() -> None:
        raise AssertionError("nothing is built here")

    services = Services(bus, conditions, clock, live)
    cluster = ClusterWiring(services, {}, "node-1", OrderHandlers(), no_control, identify_nobody)
    side = SlicesWiring(services, cluster, "node-1", lambda: Gates((), clock=clock))
    assert [spec.name for spec in side.specs()] == parts
    assert {one.code for one in conditions.all_set()} == codes
    side.close()
    await cluster.aclose()
