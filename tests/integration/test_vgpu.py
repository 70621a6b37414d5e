"""The vGPU library in real containers, put there by the agent: a program is held to its part of a GPU, to the byte.

The driver is the fake one, in the place where the host keeps the real one; what is between the pod's request and the
refused allocation is real: the kubelet, the agent, containerd, the dynamic linker of the container.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.cuda.driver import build_driver
from tests.integration.cluster.agent import AgentUnderTest
from tests.integration.cluster.api import Json
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.making.images import render_tree_image
from tests.integration.cluster.pods import Pods, render_pod
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent
from tests.integration.runtimes.support import VERSION, built, run
from tests.integration.test_cdi_pods import DIRECTORY, driver
from tests.integration.test_fractions import CORE, MEMORY

__all__ = ["driver"]

IMAGE = "localhost/gpu-hog:1"
MIB = 1 << 20
PROGRAM = """
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int cuInit(unsigned), cuDeviceGet(int *, int), cuCtxCreate_v2(void **, unsigned, int);
int cuMemAlloc_v2(unsigned long long *, size_t), cuMemGetInfo_v2(size_t *, size_t *);
int main(int count, char **words)
{
    int device, most = count > 1 ? atoi(words[1]) : 1 << 30;
    void *context;
    if (cuInit(0) || cuDeviceGet(&device, 0) || cuCtxCreate_v2(&context, 0, device))
        return 1;
    for (int had = 0, told = -1;; usleep(50000)) {
        unsigned long long at;
        int status;
        while ((status = had < most ? cuMemAlloc_v2(&at, 1 << 20) : 0) == 0 && had < most)
            had++;
        size_t spare, total;
        if (cuMemGetInfo_v2(&spare, &total))
            return 2;
        if (had != told)
            printf("had %d status %d free %zu total %zu\\n", told = had, status, spare >> 20, total >> 20);
        fflush(stdout);
        if (count > 1) {
            if (truncate("/run/nodeagent/vgpu/shared", 0) || truncate("/run/nodeagent/vgpu/own/usage", 0))
                return 3;
            printf("cut\\n");
            fflush(stdout);
            pause();
        }
    }
}
"""
"""Takes memory by the MiB until it is refused, tells what it has, and tries again.

Or until it has so many, and then cuts off the files that it can write.
"""


@pytest.fixture(scope="module")
def fake_driver(driver: Path) -> Path:
    """The driver's root, with the fake one as its libcuda."""
    shutil.copy(build_driver(), driver / DIRECTORY.lstrip("/") / f"libcuda.so.{VERSION}")
    return driver


@pytest.fixture(scope="module")
def image(fake_driver: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The program, linked against the driver, and the C library that it needs."""
    directory = tmp_path_factory.mktemp("image")
    root, source = directory / "root", directory / "hog.c"
    for name in ("bin", "etc", "tmp"):
        (root / name).mkdir(parents=True)
    source.write_text(PROGRAM)
    library = fake_driver / DIRECTORY.lstrip("/") / "libcuda.so.1"
    run("cc", "-o", root / "bin/hog", source, library)
    interpreter = re.search(r"interpreter: (.*)\]", run("readelf", "--program-headers", root / "bin/hog"))
    assert interpreter is not None
    for each in (interpreter[1], *re.findall(r"=> (/\S+)", run("ldd", root / "bin/hog"))):
        if "libcuda" not in each:
            place = root / each.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(each, place)
    return render_tree_image(root, IMAGE)


@pytest.fixture
def agent(
    node: Cluster, image: bytes, fake_driver: Path, make_agent: MakeAgent, tmp_path: Path
) -> Iterator[AgentUnderTest]:
    """One that gives the first GPU in parts and puts the library into containers."""
    settings: dict[str, dict[str, Any]] = {
        "driver": {"root": str(fake_driver)},
        "cdi": {"hooks": "none"},
        "fractions": {"enabled": True, "enforcement": "library"},
        "doors": {"rules": [{"gpus": ["0"], "door": "fractions"}]},
        "kubelet": {"pod_resources_poll_seconds": 0.5},
    }
    with built(), node.imported(image, IMAGE, tmp_path):
        agent = make_agent(gpus="simulated:dgx-h100", settings=settings)
        node.wait_count(CORE, 100)
        node.wait_count(MEMORY, 318)
        yield agent


def render_hog(agent: AgentUnderTest, name: str, blocks: int) -> Json:
    """A pod whose program takes all that it can get."""
    uuid = next(one["gpu"]["uuid"] for one in agent.get_json("/api/v1/gpus")["gpus"] if one["gpu"]["index"] == 0)
    environment = {"FAKE_CUDA_UUID": uuid.removeprefix("GPU-").replace("-", ""), "FAKE_CUDA_ACCOUNT": "/tmp/account"}
    pod = render_pod(name, ("/bin/hog",), limits={CORE: 20, MEMORY: blocks}, environment=environment)
    pod["spec"]["containers"][0]["image"] = IMAGE
    return pod


def read_told(pods: Pods, name: str) -> tuple[int, ...]:
    """What the program told last: what it has, why it got no more, what it sees as free and as all there is."""
    lines = [line for line in pods.logs(name).splitlines() if line.startswith("had ")]
    return tuple(map(int, re.findall(r"\d+", lines[-1]))) if lines else ()


def wait_withdrawn(pods: Pods, name: str, told: tuple[int, ...]) -> None:
    def probe() -> str | None:
        found = read_told(pods, name)
        return None if found == told else f"{found}; {pods.logs(name)[-500:]}"

    wait_until(f"{name} to tell {told}", probe, timeout_seconds=30)


def test_a_program_is_refused_exactly_at_its_limit(agent: AgentUnderTest, pods: Pods) -> None:
    """By CUDA's own error; it sees its part as all there is, a larger one while it runs, nothing of its neighbour."""
    out_of_memory = 2
    pods.run(render_hog(agent, "small", 1))
    wait_withdrawn(pods, "small", (256, out_of_memory, 0, 256))
    pods.run(render_hog(agent, "large", 4))
    wait_withdrawn(pods, "large", (1024, out_of_memory, 0, 1024))
    assert read_told(pods, "small") == (256, out_of_memory, 0, 256)
    agent.run("fractions", "set", "default/small", "--memory", "300MiB")
    wait_withdrawn(pods, "small", (300, out_of_memory, 0, 300))
    assert read_told(pods, "large") == (1024, out_of_memory, 0, 1024)
