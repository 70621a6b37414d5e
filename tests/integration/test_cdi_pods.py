"""Pods that are given GPUs by CDI, through the real kubelet and containerd: exactly theirs, and a driver that loads.

The driver is made up and the device nodes have NVIDIA's numbers with nothing behind them, so that all of the way is
real: the agent's specification, its answer to the kubelet, containerd's injection, the container's dynamic linker.
"""

import itertools
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster.agent import AgentUnderTest
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.making.images import render_tree_image
from tests.integration.cluster.pods import WAIT, Pods, render_pod
from tests.integration.conftest import MakeAgent
from tests.integration.runtimes.support import PROBE, VERSION, built_hook, run

IMAGE = "localhost/gpu-program:1"
LIBRARIES = {
    "libcuda": "int cuDriverGetVersion(int *version) { *version = 12080; return 0; }\n",
    "libnvidia-ml": "int nvmlInit_v2(void) { return 0; }\n",
    "libnvidia-ptxjitcompiler": "int made_up(void) { return 0; }\n",
}
PROGRAM = """
int cuDriverGetVersion(int *), nvmlInit_v2(void);
int main(void) { int version = 0; return cuDriverGetVersion(&version) || nvmlInit_v2() || version != 12080; }
"""
DRIVER_MAJOR, CONTROL_MINOR, UVM_MAJOR = 195, 255, 511
CONTROL = {"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"}
PASSES, DENIED = "No such device or address", "Operation not permitted"
DIRECTORY = "/usr/lib/x86_64-linux-gnu"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A driver root of three libraries and the nodes of eight GPUs."""
    root = tmp_path_factory.mktemp("driver")
    libraries, dev = root / DIRECTORY.lstrip("/"), root / "dev"
    libraries.mkdir(parents=True)
    dev.mkdir()
    for name, text in LIBRARIES.items():
        source = root / f"{name}.c"
        source.write_text(text)
        real = libraries / f"{name}.so.{VERSION}"
        run("cc", "-shared", "-nostdlib", "-fPIC", f"-Wl,-soname,{name}.so.1", "-o", real, source)
        (libraries / f"{name}.so.1").symlink_to(real.name)
    numbers = {f"nvidia{index}": (DRIVER_MAJOR, index) for index in range(8)}
    numbers |= {
        "nvidiactl": (DRIVER_MAJOR, CONTROL_MINOR),
        "nvidia-uvm": (UVM_MAJOR, 0),
        "nvidia-uvm-tools": (UVM_MAJOR, 1),
    }
    for name, (major, minor) in numbers.items():
        os.mknod(dev / name, 0o20666, os.makedev(major, minor))
        (dev / name).chmod(0o666)
    return root


@pytest.fixture(scope="module")
def image(driver: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A shell, and programs that need the driver: linked against it, and opening it; for glibc and for musl."""
    directory = tmp_path_factory.mktemp("image")
    root, source = directory / "root", directory / "program.c"
    for name in ("bin", "etc", "tmp", "sbin", "usr/lib"):
        (root / name).mkdir(parents=True)
    source.write_text(PROGRAM)
    libraries = [driver / DIRECTORY.lstrip("/") / f"{name}.so.1" for name in ("libcuda", "libnvidia-ml")]
    run("cc", "-o", root / "bin/linked", source, *libraries)
    run("cc", "-o", root / "bin/probe", PROBE)
    run("musl-gcc", "-o", root / "bin/probe-musl", PROBE)
    for program in ("probe", "probe-musl"):
        interpreter = re.search(r"interpreter: (.*)\]", run("readelf", "--program-headers", root / "bin" / program))
        assert interpreter is not None
        _copy(Path(interpreter[1]), root)
    for each in re.findall(r"=> (/\S+)", run("ldd", root / "bin/probe")):
        _copy(Path(each), root)
    shutil.copy("/sbin/ldconfig", root / "sbin/ldconfig")
    busybox = shutil.which("busybox")
    assert busybox is not None
    shutil.copy(busybox, root / "bin/busybox")
    for applet in ("sh", "ls", "env", "sleep", "mknod", "cat"):
        (root / "bin" / applet).symlink_to("busybox")
    return render_tree_image(root, IMAGE)


@pytest.fixture
def hook() -> Iterator[Path]:
    """The hook program, as the agent installs it."""
    with built_hook() as program:
        yield program


def _copy(path: Path, root: Path) -> None:
    place = root / str(path).lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, place)


@pytest.fixture
def gpu_node(node: Cluster, image: bytes, tmp_path: Path) -> Iterator[Cluster]:
    with node.imported(image, IMAGE, tmp_path):
        yield node


def _settings(driver: Path, strategies: Sequence[str], **cdi: str) -> dict[str, dict[str, Any]]:
    return {
        "driver": {"root": str(driver)},
        "device_plugin": {"device_list_strategy": list(strategies)},
        "kubelet": {"pod_resources_poll_seconds": 0.5},
        "cdi": cdi,
    }


def _run_pod(pods: Pods, name: str, count: int, *, environment: Mapping[str, str] | None = None) -> str:
    limits = {"nvidia.com/gpu": count} if count else None
    pod = render_pod(name, ("/bin/sh", "-c", WAIT), limits=limits, environment=environment)
    pod["spec"]["containers"][0]["image"] = IMAGE
    return pods.run(pod)


def _minors(agent: AgentUnderTest, pod: str) -> set[int]:
    """Minor numbers of the GPUs that the agent gave to a pod."""
    held = [each for each in agent.get_json("/api/v1/allocations") if (each["pod"] or {}).get("name") == pod]
    minors = {one["gpu"]["uuid"]: one["gpu"]["minor"] for one in agent.get_json("/api/v1/gpus")["gpus"]}
    return {minors[device] for each in held for device in each["devices"]}


def list_nodes(pods: Pods, pod: str) -> set[str]:
    return {name for name in pods.exec(pod, "ls", "/dev").split() if name.startswith("nvidia")}


def open_node(pods: Pods, pod: str, path: str) -> str:
    """What the program in the container hears when it opens a device node."""
    return pods.exec(pod, "sh", "-c", f"(: <{path}) 2>&1; true").strip().rpartition(": ")[2]


def _check_devices(agent: AgentUnderTest, pods: Pods, name: str, count: int) -> None:
    """Its own nodes and no others: they can be opened, and a neighbour's cannot, even by a node of its own making."""
    minors = _minors(agent, name)
    assert len(minors) == count
    assert list_nodes(pods, name) == CONTROL | {f"nvidia{minor}" for minor in minors}
    assert {open_node(pods, name, f"/dev/nvidia{minor}") for minor in minors} == {PASSES}
    foreign = next(minor for minor in itertools.count() if minor not in minors)
    pods.exec(name, "mknod", "/tmp/foreign", "c", str(DRIVER_MAJOR), str(foreign))
    assert open_node(pods, name, "/tmp/foreign") == DENIED


def check_probe(pods: Pods, name: str, program: str, *, visible: str = "void") -> None:
    """The program opens the driver by its SONAME, calls it, and finds the environment."""
    said = pods.exec(name, program).splitlines()
    assert "version: 12080" in said
    assert f"visible: {visible}" in said


def test_a_pod_by_cdi_names_has_its_gpus_and_a_driver_that_loads(
    gpu_node: Cluster, pods: Pods, make_agent: MakeAgent, driver: Path
) -> None:
    """With cdi-cri and no hook: two GPUs of eight, each library found by the linker of glibc and of musl."""
    agent = make_agent(gpus="simulated:dgx-h100", settings=_settings(driver, ["cdi-cri"], hooks="none"))
    gpu_node.wait_count("nvidia.com/gpu", 8)
    name = _run_pod(pods, "by-name", 2)
    _check_devices(agent, pods, name, 2)
    check_probe(pods, name, "probe")
    check_probe(pods, name, "probe-musl")
    # What `ldd` prints: where the dynamic linker finds each library that the program was linked against.
    resolved = pods.exec(name, "sh", "-c", "LD_TRACE_LOADED_OBJECTS=1 linked")
    assert dict(re.findall(r"(lib\S+) => (\S+)", resolved)).keys() >= {"libcuda.so.1", "libnvidia-ml.so.1", "libc.so.6"}
    assert "not found" not in resolved
    pods.exec(name, "linked")
    mounted = pods.exec(name, "ls", DIRECTORY).split()
    assert {f"{library}.so.{end}" for library in LIBRARIES for end in ("1", VERSION)} <= set(mounted)


def test_a_pod_by_annotation_has_its_gpu_and_a_linker_cache(
    hook: Path, gpu_node: Cluster, pods: Pods, make_agent: MakeAgent, driver: Path, tmp_path: Path
) -> None:
    """With cdi-annotations and the hook: one GPU, and a linker cache that lists each library of the driver."""
    settings = _settings(driver, ["cdi-annotations"], hooks="ldcache", hook_dir=str(tmp_path / "hook"))
    agent = make_agent(gpus="simulated:dgx-h100", settings=settings)
    gpu_node.wait_count("nvidia.com/gpu", 8)
    name = _run_pod(pods, "by-annotation", 1)
    _check_devices(agent, pods, name, 1)
    check_probe(pods, name, "probe")
    cached = pods.exec(name, "/sbin/ldconfig", "-p")
    for library in LIBRARIES:
        assert f"=> {DIRECTORY}/{library}.so.1" in cached
    pods.exec(name, "linked")


def test_a_pod_has_what_the_settings_give_every_container_with_a_gpu(
    gpu_node: Cluster, pods: Pods, make_agent: MakeAgent, driver: Path
) -> None:
    """A node of the host under another path, a variable in place of the pod's, the driver where GPU images look.

    A node that the host lacks keeps no pod from starting, and a pod without a GPU has nothing of it.
    """
    settings = _settings(driver, ["cdi-cri"], hooks="none") | {
        "containers": {
            "layout": "usr_local_nvidia",
            "extra_devices": [{"host": "/dev/zero", "container": "/dev/nought"}, "/dev/nowhere"],
            "extra_environment": {"GPU_POOL": "training"},
        }
    }
    make_agent(gpus="simulated:dgx-h100", settings=settings)
    gpu_node.wait_count("nvidia.com/gpu", 8)
    name = _run_pod(pods, "extras", 1, environment={"GPU_POOL": "none"})
    assert pods.exec(name, "busybox", "od", "-An", "-tx1", "-N2", "/dev/nought").split() == ["00", "00"]
    assert "GPU_POOL=training" in pods.exec(name, "env").splitlines()
    mounted = pods.exec(name, "ls", "/usr/local/nvidia/lib64").split()
    assert {f"{library}.so.{end}" for library in LIBRARIES for end in ("1", VERSION)} <= set(mounted)
    without = _run_pod(pods, "without", 0)
    assert "nought" not in pods.exec(without, "ls", "/dev").split()
    assert "GPU_POOL" not in pods.exec(without, "env")


def test_two_pods_share_no_device_node(gpu_node: Cluster, pods: Pods, make_agent: MakeAgent, driver: Path) -> None:
    """What one pod has the other has not, with both ways of telling at once, as an upgrade of a cluster has them."""
    agent = make_agent(gpus="simulated:dgx-h100", settings=_settings(driver, ["cdi-cri", "cdi-annotations"]))
    gpu_node.wait_count("nvidia.com/gpu", 8)
    first, second = _run_pod(pods, "first", 3), _run_pod(pods, "second", 5)
    assert len(_minors(agent, first) | _minors(agent, second)) == 8
    assert list_nodes(pods, first) & list_nodes(pods, second) == CONTROL
