"""The pods that bring NVIDIA's driver to nodes, as the chart makes them, and the scripts in them."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.deploy.chart import Object, needs_helm, read_manifest, render_objects, settings_of
from tests.deploy.helm import CHART, render_chart

pytestmark = [needs_helm, pytest.mark.may_block("nothing here runs on an event loop")]

DRIVER = ("--set", "driver.enabled=true,driver.repository=registry.example/nvidia,driver.os=ubuntu24.04")
VERSION = ("--set-string", "driver.version=570.172.08")
GROUPS = [
    {"name": "old", "nodeSelector": {"pool": "old"}, "version": "535.261.03", "os": "ubuntu22.04"},
    {"name": "new", "nodeSelector": {"pool": "new"}, "kernelModuleType": "open"},
]


def pods_of(objects: dict[tuple[str, str], Object]) -> dict[str, Object]:
    """The pods of the driver's DaemonSets, by name."""
    return {
        name: each["spec"]["template"]["spec"]
        for (kind, name), each in objects.items()
        if kind == "DaemonSet" and name.startswith("nodeagent-driver")
    }


def container_of(pod: Object, name: str = "driver") -> Object:
    (found,) = (each for each in [*pod["initContainers"], *pod["containers"]] if each["name"] == name)
    return dict(found)


def environment_of(container: Object) -> dict[str, object]:
    return {each["name"]: each.get("value") for each in container["env"]}


def test_no_driver_pod_comes_unless_it_is_asked_for() -> None:
    """The manifests as shipped leave drivers to the nodes."""
    assert not [name for _, name in read_manifest() if "driver" in name]
    assert not [name for _, name in render_objects() if "driver" in name]


def test_nodes_get_the_image_that_is_named(tmp_path: Path) -> None:
    """By the version and the system of the nodes, and the agent looks for the driver where the pod brings it."""
    objects = render_objects(*DRIVER, *VERSION)
    pod = pods_of(objects)["nodeagent-driver"]
    driver = container_of(pod)
    assert driver["image"] == "registry.example/nvidia/driver:570.172.08-ubuntu24.04"
    assert (driver["command"], driver["args"]) == (["nvidia-driver"], ["init"])
    assert environment_of(driver)["KERNEL_MODULE_TYPE"] == "auto"
    assert pod["hostPID"] is True
    assert driver["securityContext"]["privileged"] is True
    (root,) = (each for each in driver["volumeMounts"] if each["mountPath"] == "/run/nvidia")
    assert root["mountPropagation"] == "Bidirectional"
    settings = settings_of(objects, tmp_path).driver
    assert (str(settings.root), settings.installed_by) == ("/run/nvidia/driver", "container")
    assert [each["name"] for each in pod["containers"]] == ["driver"]


def test_the_configuration_outranks_where_the_pod_brings_the_driver(tmp_path: Path) -> None:
    """As everywhere: where some nodes have a driver of their own, the agent looks for either."""
    objects = render_objects(
        *DRIVER, *VERSION, "--set", "config.driver.root=/,config.driver.installed_by=nobody,gpuAccess=none"
    )
    settings = settings_of(objects, tmp_path).driver
    assert (str(settings.root), settings.installed_by, settings.manage_device_nodes) == ("/", "nobody", False)


def test_nothing_replaces_a_driver_pod_by_itself() -> None:
    """Neither an update of the DaemonSet, nor its end with the release; and no node ever has two driver pods."""
    daemonset = render_objects(*DRIVER, *VERSION)["DaemonSet", "nodeagent-driver"]
    assert daemonset["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert daemonset["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    template = daemonset["spec"]["template"]
    (term,) = template["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert (term["topologyKey"], term["namespaceSelector"]) == ("kubernetes.io/hostname", {})
    assert term["labelSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert daemonset["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()


def test_a_driver_pod_has_no_account_in_the_cluster() -> None:
    """It asks the API server for nothing."""
    objects = render_objects(*DRIVER, *VERSION, "--api-versions", "security.openshift.io/v1")
    pod = pods_of(objects)["nodeagent-driver"]
    assert pod["automountServiceAccountToken"] is False
    named = {each["name"] for each in objects["RoleBinding", "nodeagent-openshift"]["subjects"]}
    assert named == {"nodeagent", pod["serviceAccountName"]}


def render_groups(*groups: object) -> tuple[str, ...]:
    return (*DRIVER, *VERSION, "--set-json", f"driver.groups={json.dumps(groups)}")


def test_groups_of_nodes_have_drivers_of_their_own() -> None:
    """Each with its own values, and with those of all groups where it says nothing."""
    pods = pods_of(render_objects(*render_groups(*GROUPS)))
    images = {name: container_of(pod)["image"].rpartition(":")[2] for name, pod in pods.items()}
    assert images == {
        "nodeagent-driver-old": "535.261.03-ubuntu22.04",
        "nodeagent-driver-new": "570.172.08-ubuntu24.04",
    }
    assert pods["nodeagent-driver-old"]["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "old"}
    new = environment_of(container_of(pods["nodeagent-driver-new"]))
    assert new["KERNEL_MODULE_TYPE"] == "open"


def test_an_image_for_a_single_kernel_goes_to_nodes_with_that_kernel() -> None:
    """By node feature discovery's label; two kernels are two groups that share no node."""
    groups = [
        {"name": name, "nodeSelector": {"pool": "a"}, "usePrecompiled": True, "kernel": kernel, "version": "570"}
        for name, kernel in (("first", "6.8.0-60-generic"), ("second", "6.8.0-71-generic"))
    ]
    pods = pods_of(render_objects(*render_groups(*groups)))
    second = pods["nodeagent-driver-second"]
    assert container_of(second)["image"].endswith("driver:570-6.8.0-71-generic-ubuntu24.04")
    assert second["nodeSelector"]["feature.node.kubernetes.io/kernel-version.full"] == "6.8.0-71-generic"


def test_an_image_can_be_named_by_its_digest() -> None:
    digest = f"sha256:{'0' * 64}"
    pods = pods_of(render_objects(*DRIVER, "--set", f"driver.version={digest},driver.os=,driver.repository="))
    assert container_of(pods["nodeagent-driver"])["image"] == f"driver@{digest}"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((), "driver: version is missing"),
        ((*VERSION, "--set", "driver.os="), "driver: os is missing"),
        ((*VERSION, "--set", "driver.usePrecompiled=true"), "driver: kernel is missing"),
        ((*VERSION, "--set", "driver.kernel=6.8.0"), "driver: kernel: only images with usePrecompiled"),
        ((*VERSION, "--set", "driver.os=Windows"), "/driver/os"),
        ((*VERSION, "--set", "driver.operating=x"), "operating"),
        ((*VERSION, "--set", "driver.name=x"), "/driver/name"),
        ((*VERSION, "--set", "driver.kernelModuleType=closed"), "/driver/kernelModuleType"),
        ((*VERSION, "--set", "driver.mounts[0].mountPath=/x"), "/driver/mounts/0"),
        (render_groups({"name": "a"}), "nodeSelector"),
        (render_groups(GROUPS[0], {**GROUPS[1], "nodeSelector": {"pool": "old"}}), "old and new may choose the same"),
        (render_groups(GROUPS[0], {**GROUPS[1], "nodeSelector": {"rack": "1"}}), "old and new may choose the same"),
        (render_groups({**GROUPS[0], "enabled": True}), "/driver/groups/0/enabled"),
    ],
)
def test_a_driver_that_cannot_be_meant_is_refused_by_its_name(words: tuple[str, ...], named: str) -> None:
    """Above all two groups that could meet on one node."""
    done = render_chart(*DRIVER, *words)
    assert done.returncode != 0
    assert named in done.stderr


def test_only_a_changed_driver_is_another_configuration() -> None:
    """The image keeps the modules of the same digest loaded: neither probes nor labels are part of it."""

    def read_digest(*words: str) -> object:
        pod = pods_of(render_objects(*DRIVER, *VERSION, *words))["nodeagent-driver"]
        digests = {environment_of(container_of(pod, name))["DRIVER_CONFIG_DIGEST"] for name in ("gate", "driver")}
        (digest,) = digests
        return digest

    before = read_digest()
    kept = "driver.startupProbe.periodSeconds=5,driver.podLabels.a=b,image.tag=v9,driver.nodeSelector.pool=a"
    assert read_digest("--set", kept) == before
    for changed in ("driver.kernelModuleType=open", "driver.os=rhel9", "driver.rdma.enabled=true", "driver.args={-x}"):
        assert read_digest("--set", changed) != before, changed


def test_what_a_cluster_adds_reaches_the_image() -> None:
    """Package sources, secret variables, and the module for network cards in a container of its own."""
    sources = {"configMap": "sources", "mountPath": "/etc/apt/sources.list.d"}
    mounts = json.dumps([sources, {"secret": "s", "mountPath": "/a", "subPath": "k"}])
    words = (
        "driver.rdma.enabled=true,driver.rdma.useHostMofed=true,driver.secretEnv=proxy,driver.args={--max-threads=4}"
    )
    objects = render_objects(*DRIVER, *VERSION, "--set", words, "--set-json", f"driver.mounts={mounts}")
    pod = pods_of(objects)["nodeagent-driver"]
    driver, peermem = container_of(pod), container_of(pod, "peermem")
    assert driver["args"] == ["init", "--max-threads=4"]
    assert driver["envFrom"] == [{"secretRef": {"name": "proxy"}}]
    for container in (driver, peermem):
        assert {"name": "files-1", "mountPath": "/a", "readOnly": True, "subPath": "k"} in container["volumeMounts"]
        assert environment_of(container)["USE_HOST_MOFED"] == "true"
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert volumes["files-0"]["configMap"] == {"name": "sources"}
    assert volumes["files-1"]["secret"] == {"secretName": "s"}
    assert volumes["mellanox-sources"]["hostPath"]["path"] == "/usr/src"


def test_every_host_directory_of_a_driver_pod_has_its_reason() -> None:
    """A mount of the host stands under a comment that says what for."""
    lines = (CHART / "templates/driver.yaml").read_text().splitlines()
    mounts = [number for number, line in enumerate(lines) if "hostPath:" in line]
    assert len(mounts) == 11
    for number in mounts:
        assert lines[number - 2].strip().startswith("# "), lines[number]


class Node:
    """A node's files as the scripts of a driver pod see the node."""

    def __init__(self, root: Path) -> None:
        self.host, self.modules, self.run_nvidia = root / "host", root / "modules", root / "run"
        for place in (self.host, self.modules, self.run_nvidia, root / "bin"):
            place.mkdir()
        self._environment = os.environ | {
            "HOST_ROOT": str(self.host),
            "MODULES": str(self.modules),
            "RUN_NVIDIA": str(self.run_nvidia),
            "DRIVER_CONFIG_DIGEST": "0123abcd",
            "PATH": f"{root / 'bin'}:{os.environ['PATH']}",
        }
        self.add_program("sleep", "echo slept; exit 9")
        self.add_program("nvidia-smi", "echo asked")

    def add_program(self, name: str, body: str) -> None:
        program = self.host.parent / "bin" / name
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)

    def add_module(self, name: str, references: int, *holders: str) -> None:
        module = self.modules / name
        (module / "holders").mkdir(parents=True)
        (module / "refcnt").write_text(f"{references}\n")
        for holder in holders:
            (module / "holders" / holder).touch()

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        words = ["sh", str(CHART / f"files/driver/{script}.sh")]
        return subprocess.run(words, capture_output=True, text=True, check=False, env=self._environment, timeout=50)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_the_gate_opens_where_no_driver_is(node: Node) -> None:
    done = node.run("gate")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_gate_stays_shut_on_a_node_with_a_driver_of_its_own(node: Node) -> None:
    """Also one whose link leads nowhere from the pod; the message is what `kubectl describe` shows."""
    place = node.host / "usr/lib/x86_64-linux-gnu"
    place.mkdir(parents=True)
    (place / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.570.172.08")
    done = node.run("gate")
    assert done.returncode == 1
    assert "a driver of its own (/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1)" in done.stderr


def test_the_gate_waits_for_those_who_hold_the_driver(node: Node) -> None:
    """Modules hold one another, which is nobody; a process more is somebody, and is waited for."""
    node.add_module("nvidia", 3, "nvidia_uvm", "nvidia_modeset")
    node.add_module("nvidia_uvm", 2)
    node.add_module("nvidia_modeset", 0)
    done = node.run("gate")
    assert done.returncode == 9, "it went to sleep"
    assert "nobody holds the driver that is loaded: nvidia_uvm nvidia \n" in done.stdout
    assert "nodeagent release" in done.stdout


def test_the_gate_opens_once_the_driver_is_let_go(node: Node) -> None:
    """The driver's container takes the modules out then."""
    node.add_module("nvidia", 2, "nvidia_uvm")
    node.add_program("sleep", f"echo 1 >{node.modules}/nvidia/refcnt")
    assert node.run("gate").returncode == 0


def test_the_gate_opens_for_the_driver_that_is_loaded(node: Node) -> None:
    """A pod that was restarted with the same configuration touches nobody."""
    node.add_module("nvidia", 5)
    (node.run_nvidia / "nvidia-driver.state").write_text("digest=0123abcd\n")
    assert node.run("gate").returncode == 0


def test_a_driver_is_ready_when_module_daemons_and_tools_are(node: Node) -> None:
    """Told to other containers as the GPU Operator's driver pods tell it."""
    told = node.run_nvidia / "validations/.driver-ctr-ready"
    assert node.run("probe").returncode == 1
    node.add_module("nvidia", 1)
    told.parent.mkdir()
    (told.parent / ".driver-daemons-status").write_text("NotReady\n")
    assert "daemons are not up: NotReady" in node.run("probe").stderr
    assert not told.exists()
    (told.parent / ".driver-daemons-status").write_text("Ready\n")
    assert node.run("probe").returncode == 0
    assert told.read_text() == "GDRCOPY_ENABLED: false\nGDS_ENABLED: false\nGPU_DIRECT_RDMA_ENABLED: false\n"
    told.unlink()
    node.add_program("nvidia-smi", "exit 9")
    assert (node.run("probe").returncode, told.exists()) == (9, False)
