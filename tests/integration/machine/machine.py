"""A machine to install on: a fresh Debian under its own systemd, with a driver that is fake and a stand-in kubelet.

Owns what an operator would have there before the agent comes: packages, the driver, a kubelet, a checkout with a built
wheel. Pip is given the pinned wheels from the cache in place of the network; all else is the machine's own.
"""

import dataclasses
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.deploy.dist import build as build_distribution
from tests.fakes.nvml.control import FakeNvml
from tests.integration.host_driver import CONTROL_NODES, make_node
from tests.integration.machine.box import PATH, list_files
from tests.integration.machine.roots import ROOT, make_debian, make_wheelhouse
from tests.support.programs.systemd import PYTHON, Systemd, running_systemd

PACKAGES = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "procps",
    "python3",
    "python3-venv",
    "python3-pip",
    "pipx",
    "gcc",
    "libc6-dev",
)
EPOCH = "1700000000"
CHECKPOINT = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
COMMAND_SECONDS = 150.0
KERNEL_LOG = os.makedev(1, 11)
KUBELET = """\
[Service]
ExecStart=/bin/sh -c 'sleep infinity | \\
  {python} -m tests.bench.around.kubelet_process --dir /var/lib/kubelet --caller core'
WorkingDirectory={checkout}
"""
HOME = "/root"
"""Of the made-up machine's only user."""
BORN_LATER = (
    "/var/log",
    "/var/cache",
    "/var/lib/apt",
    "/var/lib/dpkg",
    "/var/lib/systemd",
    f"{HOME}/.cache",
    f"{HOME}/.local",
    "/var/tmp",
)
"""What systemd, dpkg, pip and pipx keep for themselves."""


@dataclasses.dataclass(frozen=True, slots=True)
class Machine:
    """One such machine, up."""

    systemd: Systemd
    source: Path
    """The checkout as its operator has it: `dist` and what belongs beside it."""
    wheels: Path
    fake: FakeNvml

    def call(self, command: str) -> subprocess.CompletedProcess[str]:
        """Type a command in the checkout, whatever comes of it."""
        pip = f"export PIP_NO_INDEX=1 PIP_FIND_LINKS={self.wheels} PIP_ROOT_USER_ACTION=ignore HOME=/root"
        return subprocess.run(
            self.systemd.enter("sh", "-c", f"cd {self.source} && {pip} && {command}"),
            env={"PATH": PATH, "LANG": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )

    def run(self, command: str) -> str:
        """Type a command, which must succeed; what it printed."""
        done = self.call(command)
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}\n{self.read_journal()}"
        return done.stdout

    def read_journal(self) -> str:
        """The end of what the agent's unit logged."""
        return "\n".join(self.systemd.read_journal("nodeagent.service").splitlines()[-20:])

    def show(self, name: str) -> str:
        """One property of the agent's unit."""
        return self.systemd.run("systemctl", "show", "--value", f"--property={name}", "nodeagent.service").strip()

    def wait(self, what: str, is_so: Callable[[], bool], *, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not is_so():
            assert time.monotonic() < deadline, f"waited {seconds} s for {what}:\n{self.read_journal()}"
            time.sleep(0.3)  # asking is work too

    def wait_ready(self) -> None:
        """Until the agent's devices are offered and all is well."""
        self.wait("the agent to be well", lambda: self.call("nodeagent status --json").returncode == 0)

    def count_offered(self) -> int:
        """Healthy devices, as the agent tells."""
        state = json.loads(self.run("nodeagent status --json"))
        return sum(device["healthy"] for each in state["plugin"]["resources"] for device in each["devices"])

    def list_files(self) -> dict[str, str]:
        """Everything on it, but for what its own services keep."""
        shared = [str(path) for path in (ROOT, PYTHON, self.source, self.wheels)]
        found = list_files(self.systemd.path("/"), without=[*BORN_LATER, *shared, "/tmp", "/run/systemd", "/run/log"])
        found.pop(CHECKPOINT, None)
        return found


@contextmanager
def fresh_machine(directory: Path) -> Iterator[Machine]:
    wheels = make_wheelhouse()
    base = make_debian(PACKAGES)
    source, place = directory / "nodeagent", directory / "root"
    place.mkdir()
    (source / "dist").mkdir(parents=True)
    build_distribution(source / "dist", EPOCH)
    for name in ("requirements", "deploy"):
        shutil.copytree(ROOT / name, source / name)
    fake = FakeNvml(source)
    with running_systemd(place, share=(ROOT, PYTHON, source, wheels), base=base) as systemd:
        machine = Machine(systemd, source, wheels, fake)
        prepare(machine)
        try:
            yield machine
        finally:
            fake.close()


def prepare(machine: Machine) -> None:
    """A driver, a kubelet, and the one setting that the fake driver needs."""
    systemd, fake = machine.systemd, machine.fake
    library = systemd.path("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1")
    shutil.copyfile(fake.library_path, library.with_name(f"libnvidia-ml.so.{fake.profile.driver.version}"))
    library.symlink_to(f"libnvidia-ml.so.{fake.profile.driver.version}")
    for name in (*CONTROL_NODES, *(f"nvidia{number}" for number in range(len(fake.profile.seats)))):
        make_node(systemd.path(f"/dev/{name}"))
    make_node(systemd.path("/dev/kmsg"), KERNEL_LOG)
    # The unit may write below /dev, and sees neither homes nor the machine's /tmp.
    state = systemd.path("/dev/nvml-state")
    state.touch()
    systemd.run("mount", "--bind", str(fake.state_path), "/dev/nvml-state")
    config = {
        "driver": {"worker_environment": {"NODEAGENT_FAKE_NVML": "/dev/nvml-state"}},
        "kubernetes": {"enabled": "false"},
    }
    systemd.write("/etc/nodeagent/config.yaml", json.dumps(config))
    python = ROOT / ".venv/bin/python"
    systemd.write("/etc/systemd/system/kubelet.service", KUBELET.format(python=python, checkout=ROOT))
    systemd.run("systemctl", "daemon-reload")
    systemd.run("systemctl", "start", "kubelet.service")
