"""The whole life of a driver in a container on a real cluster: it comes, is upgraded under a pod, and the node reboots.

A DaemonSet's pod does what NVIDIA's driver container does, as its DaemonSet and its published script show: it writes
the driver's root below the host's /run, loads the modules, and takes both along when it ends. The modules are files of
a made-up /sys and /proc here, and so is the process with a device file open; NVML is the fake one. DaemonSet,
evictions, the kubelet and containerd are real.
"""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from nodeagent.model.upgrades import UPGRADE_LABEL
from tests.fakes.nvml.control import FakeNvml
from tests.integration.cluster.agent import AgentUnderTest
from tests.integration.cluster.api import Json
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.layout import CHECKOUT
from tests.integration.cluster.making.render import BUSYBOX_IMAGE
from tests.integration.cluster.pods import PATH, Pods, render_pod
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent
from tests.integration.host_driver import find_driver, install_driver, make_node
from tests.integration.test_driver_upgrade import label, wait_said, wait_upgrade
from tests.integration.test_fractions import GPU
from tests.unit.edge.host.tree import HostTree

RIGHTS = tuple(CHECKOUT / f"deploy/rbac-{name}.yaml" for name in ("mig", "repairs"))
DAEMON_SETS = "/apis/apps/v1/namespaces/default/daemonsets"
COMPONENT = {"app.kubernetes.io/component": "nvidia-driver"}
NEW = "590.44.01"
GPU_MAJOR, USED_GPU = 195, 3
MONITOR = 4242
"""A process of nobody's pod."""
PATIENCE_SECONDS = 60.0
SCRIPT = """
leave() {
  until [ -e /stage/may-unload ]; do sleep 0.1; done
  rm -rf /host/sys/module/nvidia /host/proc/driver/nvidia /driver/usr /driver/dev
  exit 0
}
trap leave TERM
until [ -e /stage/may-load ]; do sleep 0.1; done
cp -a /stage/$VERSION/. /driver/
mkdir -p /host/sys/module/nvidia /host/proc/driver/nvidia
cd /host
echo $VERSION >sys/module/nvidia/version
echo "NVRM version: NVIDIA UNIX x86_64 Kernel Module  $VERSION  Tue Jan 6 00:00:00 UTC 2026" >proc/driver/nvidia/version
echo 0 >sys/module/nvidia/refcnt
while :; do sleep 0.1; done
"""
pytestmark = [pytest.mark.timeout(400), pytest.mark.nightly]


class DriverNode(NamedTuple):
    """What the driver's pods write to, and what tells them to go on."""

    home: Path
    stage: Path
    host: HostTree
    old: str
    environment: dict[str, str]
    """By which the library of either version finds its state."""

    def allow(self, what: str, *, is_allowed: bool = True) -> None:
        """Have the driver's pods load, or unload, from now on or no more."""
        place = self.stage / f"may-{what}"
        place.touch() if is_allowed else place.unlink(missing_ok=True)

    def boot(self, name: str) -> None:
        self.host.write("proc/sys/kernel/random/boot_id", f"{name}\n")

    def open_device(self, device: Path) -> None:
        """A process of the host has the file of a GPU open."""
        self.host.write(f"proc/{MONITOR}/stat", f"{MONITOR} (monitor) S 1 1 1 0")
        self.host.write(f"proc/{MONITOR}/comm", "monitor\n")
        self.host.write(f"proc/{MONITOR}/cgroup", "0::/system.slice/monitor.service\n")
        self.host.link(f"proc/{MONITOR}/fd/4", str(device))

    def end_process(self) -> None:
        shutil.rmtree(self.host.proc / str(MONITOR))


@pytest.fixture
def driver_node(node: Cluster) -> Iterator[DriverNode]:
    """A node without a driver, and two versions for its driver's pods to bring."""
    run = node.layout.run
    made = FakeNvml(node.layout.cdi_dirs[1], "dgx-h100")
    stage, host, old = run / "driver-stage", HostTree(run / "driver-host"), made.profile.driver.version
    found = DriverNode(find_driver(node.layout), stage, host, old, dict(made.environment))
    for version in (found.old, NEW):
        install_driver(found.stage / version, made, version)
    for place in (found.home, host.sys / "module", host.proc / "driver", host.proc / "1/fd"):
        place.mkdir(parents=True)
    for seat in made.profile.seats:
        host.add_function(seat.address)
    host.write("proc/1/stat", "1 (init) S 0 1 1 0")
    host.link("proc/self", "2")
    found.boot("first")
    yield found
    made.close()
    made.state_path.unlink(missing_ok=True)
    for place in (found.home, stage, host.root):
        shutil.rmtree(place)


@pytest.fixture
def device() -> Iterator[Path]:
    """A device file below /dev that has the number of a GPU's; nobody can open it here."""
    place = Path(tempfile.mkdtemp(prefix="nodeagent-", dir="/dev/shm"))
    make_node(place / f"nvidia{USED_GPU}", os.makedev(GPU_MAJOR, USED_GPU))
    yield place / f"nvidia{USED_GPU}"
    shutil.rmtree(place)


@pytest.fixture
def daemon_set(node: Cluster, driver_node: DriverNode, make_agent: MakeAgent) -> Iterator[str]:
    """The path of the driver's DaemonSet, with the rights of an agent that upgrades; the agent ends before both."""
    files = tuple(word for path in RIGHTS for word in ("-f", str(path)))
    node.run("kubectl", "apply", *files)
    node.api.post(DAEMON_SETS, render_daemon_set(driver_node))
    yield f"{DAEMON_SETS}/driver"
    for name in ("load", "unload"):
        driver_node.allow(name)
    node.api.delete(f"{DAEMON_SETS}/driver")
    Pods(node).delete_all()
    label(node, **{UPGRADE_LABEL: None})
    node.run("kubectl", "delete", "--ignore-not-found", *files)


def render_daemon_set(driver: DriverNode) -> Json:
    places = {"driver": driver.home, "stage": driver.stage, "host": driver.host.root}
    container = {
        "name": "driver",
        "image": BUSYBOX_IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", SCRIPT],
        "env": [{"name": "VERSION", "value": driver.old}],
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": name, "mountPath": f"/{name}"} for name in places],
    }
    spec = {
        "hostNetwork": True,
        "terminationGracePeriodSeconds": 60,
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": [{"name": name, "hostPath": {"path": str(path)}} for name, path in places.items()],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "driver"},
        "spec": {
            "selector": {"matchLabels": COMPONENT},
            "updateStrategy": {"type": "OnDelete"},
            "template": {"metadata": {"labels": COMPONENT}, "spec": spec},
        },
    }


def use(node: Cluster, driver: DriverNode) -> dict[str, dict[str, Any]]:
    """The settings of an agent that lets the driver's pods bring another driver."""
    return {
        "node": {
            "proc_dir": str(driver.host.proc),
            "sys_dir": str(driver.host.sys),
        },
        "driver": {
            "root": str(driver.home),
            "worker_environment": driver.environment,
            "upgrade": "act",
            "wanted_version": NEW,
            "installed_by": "container",
            "services": [],
        },
        "repairs": {"drain": {"wait_seconds": 0}},
        "cdi": {"dir": str(node.layout.cdi_dirs[1]), "hooks": "none"},
        "kubelet": {"pod_resources_poll_seconds": 0.5},
    }


def list_driver_pods(node: Cluster) -> list[Json]:
    found = node.api.get(PATH, labelSelector="app.kubernetes.io/component=nvidia-driver")["items"]
    return [one for one in found if not one["metadata"].get("deletionTimestamp")]


def wait_driver(agent: AgentUnderTest, version: str) -> None:
    def probe() -> str | None:
        status, text = agent.get("/api/v1/driver")
        return None if status == 200 and f'"module_version":"{version}"' in text else text

    wait_until(f"driver {version}", probe, timeout_seconds=PATIENCE_SECONDS)


def test_a_containers_driver_comes_is_upgraded_and_outlives_kills_and_a_reboot(
    node: Cluster,
    pods: Pods,
    make_agent: MakeAgent,
    driver_node: DriverNode,
    daemon_set: str,
    device: Path,
) -> None:
    """A pod leaves and a process is waited for; the agent is killed while the old driver goes, the node reboots after.

    No DaemonSet's pod is touched before its time, and the next pod gets a GPU of the new driver.
    """
    label(node, **{UPGRADE_LABEL: "pause"})
    driver_node.allow("load")
    agent = make_agent(gpus="nvml", settings=use(node, driver_node))
    wait_driver(agent, driver_node.old)
    node.wait_count(GPU, 8)
    pods.run(render_pod("early", limits={GPU: 1}))
    driver_node.allow("load", is_allowed=False)
    driver_node.open_device(device)
    (before,) = list_driver_pods(node)
    container = {"name": "driver", "env": [{"name": "VERSION", "value": NEW}]}
    node.api.patch(daemon_set, {"spec": {"template": {"spec": {"containers": [container]}}}}, kind="strategic")

    label(node, **{UPGRADE_LABEL: None})
    wait_said(agent, "status", "others let go of the driver", f"process {MONITOR}")
    assert "early" not in pods.names()
    assert [one["metadata"]["uid"] for one in list_driver_pods(node)] == [before["metadata"]["uid"]]
    driver_node.end_process()

    wait_upgrade(agent, phase="unload")
    wait_until(
        "the driver's pod to be asked to leave",
        lambda: str(left) if (left := list_driver_pods(node)) else None,
        timeout_seconds=PATIENCE_SECONDS,
    )
    agent.restart()
    wait_upgrade(agent, phase="unload")
    driver_node.allow("unload")
    wait_upgrade(agent, phase="install")
    pods.create(render_pod("late", limits={GPU: 1}))

    agent.stop(signal.SIGKILL)
    driver_node.boot("second")
    agent.start()
    wait_upgrade(agent, phase="install", boot="second")
    driver_node.allow("load")
    wait_upgrade(agent, ending="done")
    wait_driver(agent, NEW)
    pods.wait("late", "Running")
    (after,) = list_driver_pods(node)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
