"""Containers of one claim in the vGPU library's hands: each has a usage file of its own, all have the claim's memory.

As in `test_vgpu`, the driver is the fake one; the kubelet, the agent, containerd and the containers' linkers are real.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.claims import CLAIMS, CLASSES, GPU, RIGHTS, prepared, render, settings, wait_none
from tests.integration.cluster.agent import AgentUnderTest
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.pods import Pods
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent
from tests.integration.runtimes.support import built
from tests.integration.test_cdi_pods import driver
from tests.integration.test_vgpu import IMAGE, fake_driver, image

__all__ = ["driver", "fake_driver", "image"]

MOST = 100
LIMIT = 256


@pytest.fixture
def agent(
    node: Cluster, image: bytes, fake_driver: Path, make_agent: MakeAgent, tmp_path: Path
) -> Iterator[AgentUnderTest]:
    """One that gives shares of GPUs by claims and puts the library into containers."""
    node.run("kubectl", "apply", "-f", str(RIGHTS), "-f", str(CLASSES))
    chosen = settings(node.layout, shares=True) | {
        "driver": {"root": str(fake_driver)},
        "cdi": {"hooks": "none"},
        "fractions": {"enforcement": "library"},
    }
    with built(), node.imported(image, IMAGE, tmp_path):
        agent = make_agent(gpus="simulated:dgx-h100", settings=chosen)
        wait_until(
            "the claims' driver to be registered",
            lambda: None if agent.get_json("/api/v1/claims")["standing"]["registered"] else "it is not",
            timeout_seconds=60,
        )
        yield agent


def test_one_that_cuts_its_files_off_ends_none_of_the_others(node: Cluster, agent: AgentUnderTest, pods: Pods) -> None:
    """They live on, with what it has left of the claim's memory, and no more."""
    asked = {"deviceClassName": GPU, "capacity": {"requests": {"memory": f"{LIMIT}Mi", "cores": "20"}}}
    node.api.post(
        CLAIMS,
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "both"},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": asked}]}},
        },
    )
    pod = render("both", claim="both", containers={"mean": "", "other": ""})
    uuid = agent.get_json("/api/v1/gpus")["gpus"][0]["gpu"]["uuid"]
    environment = {"FAKE_CUDA_UUID": uuid.removeprefix("GPU-").replace("-", ""), "FAKE_CUDA_ACCOUNT": "/tmp/account"}
    for each, words in zip(pod["spec"]["containers"], (["/bin/hog", str(MOST)], ["/bin/hog"]), strict=True):
        variables = [{"name": name, "value": value} for name, value in environment.items()]
        each |= {"image": IMAGE, "command": words, "env": variables}
    pods.create(pod)
    pods.wait("both", "Running")

    def count(container: str) -> int:
        return max(map(int, re.findall(r"had (\d+)", node.run("kubectl", "logs", "both", "-c", container))), default=0)

    def probe() -> str | None:
        logs = [node.run("kubectl", "logs", "both", "-c", name) for name in ("mean", "other")]
        has_harmed = logs[0].endswith("cut\n")
        return None if has_harmed and count("mean") + count("other") == LIMIT else str(logs)[-500:]

    wait_until("both to have all of the claim together", probe, timeout_seconds=60)
    statuses = pods.read("both")["status"]["containerStatuses"]
    assert [each["restartCount"] for each in statuses] == [0, 0]
    assert set(prepared(agent)) == {"both"}
    pods.delete("both")
    wait_none(agent)
