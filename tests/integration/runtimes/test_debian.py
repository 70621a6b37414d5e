"""Runtimes of a long-lived distribution, older than CDI, as units of a real systemd: containerd 1.6 and Docker 20.10.

They serve GPUs by the classic runtime class alone. The agent's own command writes it, restarts them, sees it in force,
and takes it back to the byte; containers are started through it.
"""

import json
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.components.runtime.plan import Wanted, apply_to_tree
from nodeagent.components.runtime.plan_containerd import plan_containerd
from nodeagent.components.runtime.withdraw import withdraw
from nodeagent.edge.container_runtime.change_files import RuntimeFiles
from nodeagent.edge.container_runtime.config_files import read_config_tree
from nodeagent.edge.container_runtime.tools import check_config
from nodeagent.model.runtime import RuntimeKind
from tests.integration.cluster.making.render import BUSYBOX_IMAGE, PAUSE_IMAGE
from tests.integration.cluster.making.setup import make_image
from tests.integration.runtimes.machine import CONTAINERD_CONFIG, SOCKET, Machine, running_machine
from tests.integration.runtimes.packages import fetch_package
from tests.integration.runtimes.support import run
from tests.integration.runtimes.test_containerd import V1, V2, choose
from tests.support.programs.systemd import find_obstacle

CLASS = ("--set", "runtime.legacy_class=true")
WRAPPER = "/usr/bin/nvidia-container-runtime"
PROVED = "proved: containerd 1.6.20~ds1 comes up with it on the side, runtimes: nvidia, runc"
UNPROVED = "not proved by a start on the side: that is done with containerd alone"
CALLS = "/var/log/wrapper-calls"
CONFIG = f"""# kept by hand
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}" # no registry here
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = true
"""
DAEMON = """{
  "storage-driver": "vfs",
  "bridge": "none",
  "iptables": false,
  "ip-forward": false,
  "features": {"buildkit": true}
}
"""
SANDBOX = {
    "metadata": {"name": "pod", "namespace": "default", "uid": "1", "attempt": 1},
    "linux": {"cgroup_parent": "machine.slice", "security_context": {"namespace_options": {"network": 2}}},
}
CONTAINER = {
    "metadata": {"name": "main"},
    "image": {"image": BUSYBOX_IMAGE},
    "command": ["/bin/sleep", "1000"],
    "linux": {},
}


@pytest.fixture(scope="module")
def containerd() -> Path:
    """The directory with containerd 1.6 and what belongs to it."""
    return fetch_package("containerd") / "usr/bin"


@pytest.fixture(scope="module")
def docker() -> Path:
    """The root directory of Docker's package."""
    return fetch_package("docker.io")


@pytest.fixture
def machine(containerd: Path, docker: Path) -> Iterator[Machine]:
    assert find_obstacle() == ""
    with (
        tempfile.TemporaryDirectory(prefix="na") as directory,
        running_machine(Path(directory), share=(containerd, docker)) as machine,
    ):
        machine.systemd.write(WRAPPER, f'#!/bin/sh\necho "$@" >>{CALLS}\nexec runc "$@"\n')
        machine.systemd.path(WRAPPER).chmod(0o755)
        (machine.shared / "image.tar").write_bytes(make_image())
        yield machine


def read_calls(machine: Machine) -> str:
    return machine.systemd.path(CALLS).read_text()


@pytest.mark.parametrize("text", [V1, V2], ids=["v1", "v2"])
def test_both_configuration_versions_are_read_back_by_1_6(containerd: Path, tmp_path: Path, text: str) -> None:
    """The class is there with the cgroup driver of runc, everything else as it was; and back again."""
    main = tmp_path / "config.toml"
    main.write_text(text)
    runtime = choose(main, str(containerd))
    assert runtime.version.startswith("1.6.")
    tree = read_config_tree(RuntimeKind.CONTAINERD, str(main))
    plan = plan_containerd(runtime, tree, Wanted(cdi=False, wrapper=WRAPPER))
    assert plan.problem == ""
    assert check_config(runtime.kind, runtime.executable, apply_to_tree(tree, plan.changes))
    files = RuntimeFiles(tmp_path / "state")
    before = tomllib.loads(run(f"{containerd}/containerd", "--config", main, "config", "dump"))
    files.apply(plan.changes)
    after = tomllib.loads(run(f"{containerd}/containerd", "--config", main, "config", "dump"))
    runtimes = next(iter(find_runtimes(after)))
    added = runtimes.pop("nvidia")
    assert added["options"]["BinaryName"] == WRAPPER
    assert added["options"]["SystemdCgroup"] is True
    assert after == before
    files.restore(withdraw)
    assert main.read_text() == text


def find_runtimes(document: dict[str, object]) -> Iterator[dict[str, dict[str, dict[str, object]]]]:
    """The table of runtime classes, wherever the version of the configuration has it."""
    for name, value in document.items():
        if name == "runtimes" and isinstance(value, dict):
            yield value
        elif isinstance(value, dict):
            yield from find_runtimes(value)


def test_a_pod_runs_through_the_class_in_containerd_1_6(machine: Machine, containerd: Path) -> None:
    """Detected, refused without the class, configured and restarted with it, used by a pod, given back."""
    machine.install_containerd(containerd, CONFIG)
    refused = machine.nodeagent("runtime", "plan")
    assert (refused.returncode, "containerd 1.6 knows no CDI" in refused.stderr) == (2, True)
    planned = machine.nodeagent("runtime", "plan", *CLASS)
    assert f'+  BinaryName = "{WRAPPER}"' in planned.stdout.splitlines()
    done = machine.nodeagent("runtime", "configure", "--restart", *CLASS)
    assert (done.returncode, done.stdout) == (0, f"written: {CONTAINERD_CONFIG}\n{PROVED}\n"), done.stderr
    dumped = tomllib.loads(machine.systemd.run(f"{containerd}/containerd", "config", "dump"))
    assert next(iter(find_runtimes(dumped)))["nvidia"]["options"]["BinaryName"] == WRAPPER
    again = machine.nodeagent("runtime", "configure", "--restart", *CLASS)
    assert again.stdout == "nothing to write\n"

    ctr = (f"{containerd}/ctr", "--address", SOCKET, "--namespace", "k8s.io")
    machine.systemd.run(*ctr, "images", "import", str(machine.shared / "image.tar"))
    for name, document in (("pod", SANDBOX), ("main", CONTAINER)):
        (machine.shared / f"{name}.json").write_text(json.dumps(document))
    crictl = (str(machine.programs / "crictl"), "--runtime-endpoint", f"unix://{SOCKET}")
    pod, main = str(machine.shared / "pod.json"), str(machine.shared / "main.json")
    sandbox = machine.systemd.run(*crictl, "runp", "--runtime", "nvidia", pod).strip()
    created = machine.systemd.run(*crictl, "create", sandbox, main, pod).strip()
    machine.systemd.run(*crictl, "start", created)
    assert machine.systemd.run(*crictl, "exec", created, "echo", "hello") == "hello\n"
    assert created in read_calls(machine)

    back = machine.nodeagent("runtime", "unconfigure")
    assert (back.returncode, back.stdout) == (0, f"given back: {CONTAINERD_CONFIG}\n")
    assert machine.systemd.path(CONTAINERD_CONFIG).read_text() == CONFIG


def test_a_container_runs_through_the_class_in_docker(machine: Machine, docker: Path, containerd: Path) -> None:
    """The same with dockerd: its own answer lists the class, other features stay, a container is started by it."""
    machine.systemd.write("/etc/docker/daemon.json", DAEMON)
    machine.write_unit("docker.service", f"{docker}/usr/sbin/dockerd --host unix:///run/docker.sock", str(containerd))
    machine.systemd.run("systemctl", "start", "docker.service")
    detected = machine.nodeagent("runtime", "detect")
    assert "docker 20.10" in detected.stdout
    refused = machine.nodeagent("runtime", "configure")
    assert (refused.returncode, "knows no CDI" in refused.stderr) == (2, True)
    done = machine.nodeagent("runtime", "configure", "--restart", *CLASS)
    assert (done.returncode, done.stdout) == (0, f"written: /etc/docker/daemon.json\n{UNPROVED}\n"), done.stderr
    client = (f"{docker}/usr/bin/docker", "--host", "unix:///run/docker.sock")
    assert (
        json.loads(machine.systemd.run(*client, "info", "--format", "{{json .Runtimes}}"))["nvidia"]["path"] == WRAPPER
    )
    assert json.loads(machine.systemd.path("/etc/docker/daemon.json").read_text())["features"] == {"buildkit": True}

    machine.systemd.run(*client, "load", "--input", str(machine.shared / "image.tar"))
    flags = ("--rm", "--runtime", "nvidia", "--network", "none", "--ulimit", "nofile=1024:1024")
    assert machine.systemd.run(*client, "run", *flags, BUSYBOX_IMAGE, "echo", "hello") == "hello\n"
    assert "create" in read_calls(machine)

    back = machine.nodeagent("runtime", "unconfigure")
    assert (back.returncode, back.stdout) == (0, "given back: /etc/docker/daemon.json\n")
    assert machine.systemd.path("/etc/docker/daemon.json").read_text() == DAEMON
