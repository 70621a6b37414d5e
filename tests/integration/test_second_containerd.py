"""A node with a second containerd, as one that Docker brought: what it does not know has not ended by that."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster.control import Cluster
from tests.integration.cluster.pods import Pods
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent
from tests.integration.test_fractions import CORE, PROFILE, SETTINGS, read_bindings, render_part


@pytest.fixture
def second_containerd(node: Cluster) -> Iterator[Path]:
    """The socket of a containerd that serves no kubelet, as a node has one where Docker brought its own."""
    place = node.layout.root / "second"
    place.mkdir()
    socket, settings = place / "s.sock", place / "config.toml"
    settings.write_text(
        f'version = 3\nroot = "{place}/root"\nstate = "{place}/state"\n[grpc]\naddress = "{socket}"\n'
        f'[plugins."io.containerd.internal.v1.opt"]\npath = "{place}/opt"\n'
    )
    with (
        (place / "log").open("wb") as log,
        subprocess.Popen(("containerd", "--config", str(settings)), env=dict(node.environment), stderr=log) as started,
    ):
        try:
            wait_until(
                "the second containerd to listen",
                lambda: None if socket.is_socket() else (place / "log").read_text()[-500:],
                timeout_seconds=60,
            )
            yield socket
        finally:
            started.terminate()
    shutil.rmtree(place)


def test_a_containerd_that_is_not_the_kubelets_gives_nothing_back(
    second_containerd: Path, make_agent: MakeAgent, pods: Pods, node: Cluster
) -> None:
    """It has none of the node's containers. What the kubelet has forgotten is held for as long as it is asked."""
    wrong = {**SETTINGS, "runtime": {"socket": str(second_containerd)}}
    agent = make_agent(gpus=PROFILE, settings=wrong)
    node.wait_count(CORE, 400)
    pods.run(render_part("a", 60, 16))
    before = read_bindings(agent)
    node.forget_devices()

    def probe() -> str | None:
        found = [each for each in agent.get_json("/api/v1/conditions") if each["code"] == "parts-not-given-back"]
        wanted = f"{second_containerd} has no container of the kubelet's"
        return None if any(wanted in each["detail"] for each in found) else f"only {found}"

    wait_until("the runtime to be named", probe, timeout_seconds=120)
    assert read_bindings(agent) == before
