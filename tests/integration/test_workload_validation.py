"""The validation of a node by a pod of the agent's own image, through a real kubelet, the device plugin and CDI.

Chart, rights, policies and image are those that are shipped. NVML is the fake one, and so is the CUDA library, which
copies memory there and back.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster.control import Cluster
from tests.integration.cluster.processes import wait_until
from tests.integration.deployment import PODS, Deployment
from tests.integration.host_driver import WORKER_ENVIRONMENT, find_driver, make_node
from tests.integration.test_cordon import list_conditions
from tests.support.files.driver_tree import LIBRARY_DIRECTORY

CUDA = Path(__file__).parents[1] / "unit/edge/host/driver/fake_cuda.c"
NOBODYS = os.makedev(1, 250)
"""A number that no device of this kernel has."""
CONFIG = {
    "driver": {
        "worker_environment": WORKER_ENVIRONMENT,
        "workload_validation": True,
        "validation_markers": True,
    }
}
pytestmark = [pytest.mark.timeout(400), pytest.mark.nightly]
POD = "nodeagent-validation"
PATIENCE_SECONDS = 60.0


def install_cuda(home: Path) -> None:
    """A library that computes, in place of the one that is a name alone."""
    (library,) = (one for one in (home / LIBRARY_DIRECTORY).glob("libcuda.so.*") if not one.is_symlink())
    flags = ("-shared", "-fPIC", "-Wl,-soname,libcuda.so.1")
    subprocess.run(("cc", *flags, "-o", str(library), str(CUDA)), check=True)


def make_gpu_nodes(home: Path, *number: int) -> None:
    """The device nodes of all GPUs, made anew."""
    for path in (home / "dev").glob("nvidia[0-9]*"):
        path.unlink()
        make_node(path, *number)


def read_told(deployment: Deployment) -> list[str]:
    """Details of the condition about the validation."""
    said = json.loads(deployment.exec("sh", "-c", "nodeagent status --json || true"))
    return list_conditions(said["conditions"], "workload-invalid")


def list_markers(node: Cluster) -> set[str]:
    return {path.name for path in (node.layout.run / "nvidia/validations").iterdir()}


def count_handouts(deployment: Deployment) -> list[int]:
    """How many GPUs each container got, those that have ended included."""
    return [
        len(row["devices"])
        for words in (("--history",), ())
        for row in json.loads(deployment.exec("nodeagent", "allocations", *words, "--json"))
    ]


def test_a_node_is_validated_by_a_pod_once_its_devices_work(deployment: Deployment, node: Cluster) -> None:
    """Device nodes that nobody can open are told in the container's words; mended, the node is validated and marked."""
    home = find_driver(node.layout)
    install_cuda(home)
    make_gpu_nodes(home, NOBODYS)
    deployment.install(CONFIG)
    deployment.wait_ready()

    def find_untold() -> str | None:
        told = read_told(deployment)
        return None if any("cannot be opened" in each for each in told) else f"{told}, {deployment.describe()}"

    wait_until("the validation to fail", find_untold, timeout_seconds=PATIENCE_SECONDS)
    assert list_markers(node) == {"driver-ready"}

    make_gpu_nodes(home)
    deployment.exec("nodeagent", "release", "--reason", "device nodes")
    deployment.exec("nodeagent", "resume")
    wanted = {"driver-ready", "cuda-ready", "plugin-ready"}

    def find_unmarked() -> str | None:
        assert read_told(deployment) == []
        return None if (found := list_markers(node)) == wanted else str(found)

    wait_until("the node to be marked", find_unmarked, timeout_seconds=PATIENCE_SECONDS)
    wait_until(
        "the pod to be gone",
        lambda: str(len(left)) if (left := find_pods(node)) else None,
        timeout_seconds=PATIENCE_SECONDS,
    )
    assert count_handouts(deployment) == [1, 1]


def find_pods(node: Cluster) -> list[Any]:
    found: list[Any] = node.api.get(PODS, labelSelector=f"app.kubernetes.io/name={POD}")["items"]
    return found
