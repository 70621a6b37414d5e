"""A machine is moved from NVIDIA's toolkit to the agent and back, with containers that live through both.

systemd, containerd, runc and the toolkit's programs are the originals; made up are the GPU and what its library says.
"""

import json
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster.making.render import PAUSE_IMAGE
from tests.integration.cluster.making.setup import make_image
from tests.integration.runtimes.machine import AGENT, CONTAINERD, SOCKET, Machine, running_machine
from tests.integration.runtimes.releases import BUILD_SECONDS
from tests.integration.runtimes.support import built
from tests.integration.runtimes.test_debian import CONTAINER, SANDBOX
from tests.integration.runtimes.toolkit import program as toolkit
from tests.support.programs.systemd import find_obstacle

pytestmark = [
    pytest.mark.timeout(BUILD_SECONDS),
    pytest.mark.skipif(bool(toolkit.find_obstacle()), reason=toolkit.find_obstacle() or "it can be built"),
]

CONFIG = f"""# ours, do not reformat
version = 3
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{PAUSE_IMAGE}" # no registry here
[plugins.'io.containerd.cri.v1.runtime']
  enable_cdi = false
  restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  SystemdCgroup = true
"""
THEIRS = "/usr/bin/nvidia-container-runtime"
OURS = "/var/lib/nodeagent/nodeagent-oci-shim"
GPU = ["nvidia-uvm", "nvidia-uvm-tools", "nvidia0", "nvidiactl"]
PATIENCE_SECONDS = 60.0
NOTES = "/run/containerd/io.containerd.runtime.v2.task/k8s.io/{}/runtime"


@pytest.fixture
def machine() -> Iterator[Machine]:
    assert find_obstacle() == ""
    with tempfile.TemporaryDirectory(prefix="na") as directory, built(), running_machine(Path(directory)) as machine:
        (machine.shared / "image.tar").write_bytes(make_image())
        machine.device_nodes().repair()
        for name in (toolkit.CONFIGURER, toolkit.RUNTIME):
            place = machine.systemd.path(f"/usr/bin/{name}")
            shutil.copy(toolkit.build(name), place)
        yield machine


def crictl(machine: Machine, *words: str) -> str:
    return machine.systemd.run(str(machine.programs / "crictl"), "--runtime-endpoint", f"unix://{SOCKET}", *words)


def start(machine: Machine, name: str, *, visible: str) -> str:
    """A container of a pod of the class, which asks for GPUs by environment; its id."""
    metadata = {"name": name, "namespace": "default", "uid": secrets.token_hex(4), "attempt": 1}
    asks = {"envs": [{"key": "NVIDIA_VISIBLE_DEVICES", "value": visible}]}
    places = []
    for kind, document in (("pod", {**SANDBOX, "metadata": metadata}), ("main", {**CONTAINER, **asks})):
        places.append(machine.shared / f"{name}-{kind}.json")
        places[-1].write_text(json.dumps(document))
    pod, main = map(str, places)
    sandbox = crictl(machine, "runp", "--runtime", "nvidia", pod).strip()
    created = crictl(machine, "create", sandbox, main, pod).strip()
    crictl(machine, "start", created)
    return created


def list_gpus(machine: Machine, container: str) -> list[str]:
    """The device nodes of GPUs that it has."""
    return [name for name in crictl(machine, "exec", container, "ls", "/dev").split() if name.startswith("nvidia")]


def read_program(machine: Machine, container: str) -> str:
    """What its low-level runtime is, by containerd's own note."""
    return machine.systemd.path(NOTES.format(container)).read_text()


def read_files(machine: Machine) -> dict[str, bytes]:
    place = machine.systemd.path("/etc/containerd")
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def read_runtimes(machine: Machine) -> dict[str, Any]:
    """The classes of the running daemon; none while it is being restarted."""
    words = (str(machine.programs / "crictl"), "--runtime-endpoint", f"unix://{SOCKET}", "info")
    said = machine.systemd.call(*words).stdout
    found: dict[str, Any] = json.loads(said)["config"]["containerd"]["runtimes"] if said else {}
    return found


def wait_class(machine: Machine, program: str) -> None:
    """Wait until the running daemon's class is this program."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (read_runtimes(machine).get("nvidia") or {}).get("options", {}).get("BinaryName") != program:
        assert time.monotonic() < deadline, machine.systemd.read_journal(AGENT)
        time.sleep(0.2)


def configure_by_toolkit(machine: Machine, *flags: str) -> None:
    """A machine as its administrator has made it with the toolkit."""
    machine.install_containerd(machine.programs, CONFIG)
    machine.ctr("--namespace", "k8s.io", "images", "import", str(machine.shared / "image.tar"))
    machine.systemd.run(toolkit.CONFIGURER, "runtime", "configure", "--runtime=containerd", *flags)
    machine.systemd.run("systemctl", "restart", CONTAINERD)
    wait_class(machine, THEIRS)


def go_over(machine: Machine) -> None:
    """Start the agent with the settings of the page on this migration, but for the restart, which it makes at once."""
    settings = ("runtime.manage=true", "runtime.restart=now", "runtime.shim=true")
    machine.start_agent("gpus.source=simulated:t4", f"driver.root={machine.driver}", *settings)
    wait_class(machine, OURS)


def test_a_machine_goes_over_and_comes_back(machine: Machine) -> None:
    """What ran before runs on, what starts after has its GPU from us, and back all files are the toolkit's again."""
    configure_by_toolkit(machine, "--set-as-default")
    before = read_files(machine)
    assert sorted(before) == ["conf.d/99-nvidia.toml", "config.toml"]
    old = start(machine, "old", visible="void")
    assert THEIRS in read_program(machine, old)

    go_over(machine)
    new = start(machine, "new", visible="0")
    assert OURS in read_program(machine, new)
    assert list_gpus(machine, new) == GPU
    assert crictl(machine, "exec", old, "echo", "alive") == "alive\n"
    crictl(machine, "stop", "--timeout", "0", old)

    machine.systemd.run("systemctl", "stop", AGENT)
    assert machine.nodeagent("runtime", "unconfigure").returncode == 0
    assert read_files(machine) == before
    machine.systemd.run("systemctl", "restart", CONTAINERD)
    wait_class(machine, THEIRS)
    assert crictl(machine, "exec", new, "echo", "alive") == "alive\n"
    back = start(machine, "back", visible="void")
    assert THEIRS in read_program(machine, back)
    for container in (new, back):
        crictl(machine, "stop", "--timeout", "0", container)


def test_the_toolkits_package_goes_when_its_last_container_has_gone(machine: Machine) -> None:
    """A container is ended by the program that made it; without the toolkit's file and programs ours serves on."""
    configure_by_toolkit(machine)
    old = start(machine, "old", visible="void")
    go_over(machine)
    told = machine.nodeagent("doctor", "--set", "runtime.shim=true", "--set", "gpus.source=simulated:t4").stdout
    # The container of the pod itself is one, too.
    assert "2 containers were made by NVIDIA's runtime" in " ".join(told.split())
    for path in ("/etc/containerd/conf.d/99-nvidia.toml", THEIRS, f"/usr/bin/{toolkit.CONFIGURER}"):
        machine.systemd.path(path).unlink()
    machine.systemd.run("systemctl", "restart", CONTAINERD)
    wait_class(machine, OURS)
    new = start(machine, "new", visible="0")
    assert list_gpus(machine, new) == GPU
    # Its processes are killed by the program that made it, and that is not there.
    stop = (str(machine.programs / "crictl"), "--runtime-endpoint", f"unix://{SOCKET}", "stop", "--timeout", "0", old)
    assert f"{THEIRS}: no such file" in machine.systemd.call(*stop).stderr
    shutil.copy(toolkit.build(toolkit.RUNTIME), machine.systemd.path(THEIRS))
    machine.systemd.run(*stop)
