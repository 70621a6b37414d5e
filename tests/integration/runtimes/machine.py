"""A small machine of its own: a real systemd, a container runtime as one of its units, and a driver with device nodes.

The nodes have NVIDIA's own numbers and no driver behind them here: opening one fails as a missing device where
the device controller lets it through, and as not permitted where it does not.
"""

import dataclasses
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from nodeagent.edge.host.devices.device_node_files import DeviceNodeFiles
from tests.integration.cluster.layout import CHECKOUT, choose_free_ports
from tests.integration.runtimes.support import LIBRARY, find_programs, run
from tests.support.programs.systemd import PYTHON, Systemd, running_systemd

T4_VERSION = "535.261.03"
"""What the made-up GPU of these scenarios says of its driver."""
CONTAINERD_CONFIG = "/etc/containerd/config.toml"
SOCKET = "/run/containerd/containerd.sock"
CONTAINERD = "containerd.service"
AGENT = "nodeagent.service"
_UNIT = """[Unit]
Description={name} of a scenario
StartLimitIntervalSec=0
[Service]
Type=notify
Environment=PATH={path}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin
ExecStart={command}
Delegate=yes
KillMode=process
{more}
"""
_PROC_DEVICES = "Character devices:\n195 nvidia-frontend\n511 nvidia-uvm\n\nBlock devices:\n"
_PROC_PARAMS = "ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\n"


@dataclasses.dataclass(frozen=True, slots=True)
class Machine:
    """What a scenario works with."""

    systemd: Systemd
    shared: Path
    """Seen by the test and in there under the same name."""
    proc: Path
    """What the kernel would say of the driver, for the test's side."""
    programs: Path

    @property
    def driver(self) -> Path:
        return self.shared / "driver"

    @property
    def image(self) -> Path:
        return self.shared / "image"

    def device_nodes(self) -> DeviceNodeFiles:
        """The agent's own hands on the device nodes and links of this machine."""
        return DeviceNodeFiles(self.driver, proc_root=self.proc, host_root=self.systemd.path("/"))

    def write_unit(self, name: str, command: str, path: str, *, more: str = "") -> None:
        """Write the unit of a daemon, with `more` lines of its service section; it is not started."""
        unit = _UNIT.format(name=name, command=command, path=path, more=more)
        self.systemd.write(f"/etc/systemd/system/{name}", unit)
        self.systemd.run("systemctl", "daemon-reload")

    def install_containerd(self, programs: Path, config: str, *, more: str = "") -> None:
        """Have a containerd with this configuration as a unit, and start it."""
        self.systemd.write(CONTAINERD_CONFIG, config)
        self.write_unit(CONTAINERD, f"{programs}/containerd", str(programs), more=more)
        self.systemd.run("systemctl", "start", CONTAINERD)

    def start_agent(self, *settings: str) -> None:
        """Have the agent with these settings as the shipped unit, with all that it takes away, and start it."""
        port = choose_free_ports(1)[0]
        flags = " ".join(f"--set {setting}" for setting in (*settings, f"http.listen=127.0.0.1:{port}"))
        unit = (CHECKOUT / "systemd/nodeagent.service").read_text()
        python = CHECKOUT / ".venv/bin/python"
        unit = unit.replace("ExecStart=nodeagent run", f"ExecStart={python} -m nodeagent run {flags}")
        # The interpreter of a test may lie in somebody's home, and its checkout among temporary files.
        for protection in ("ProtectHome", "PrivateTmp"):
            unit = unit.replace(f"{protection}=yes", f"{protection}=no")
        self.systemd.write(f"/etc/systemd/system/{AGENT}", unit)
        self.systemd.run("mkdir", "-p", "/var/lib/kubelet/device-plugins")
        self.systemd.run("systemctl", "daemon-reload")
        self.systemd.run("systemctl", "start", "--no-block", AGENT)

    def ctr(self, *words: str) -> str:
        return self.systemd.run(str(self.programs / "ctr"), "--address", SOCKET, *words)

    def nodeagent(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the agent's command in there."""
        return self.systemd.call(str(CHECKOUT / ".venv/bin/python"), "-m", "nodeagent", *words)


@contextmanager
def running_machine(directory: Path, *, share: Sequence[Path] = ()) -> Iterator[Machine]:
    """A machine that lives as long as the block, without any runtime yet; it sees this checkout."""
    found = find_programs()
    assert found is not None
    programs, shared, root, proc = Path(found), directory / "s", directory / "r", directory / "proc"
    for path in (shared, root, proc):
        path.mkdir()
    make_proc(proc)
    make_libraries(shared / "driver")
    make_shell_image(shared / "image")
    with running_systemd(root, share=(shared, programs, CHECKOUT, PYTHON, *share)) as systemd:
        yield Machine(systemd, shared, proc, programs)


def make_proc(proc: Path) -> None:
    """One GPU, as the kernel and the driver tell of it."""
    gpu = proc / "driver/nvidia/gpus/0000:01:00.0"
    gpu.mkdir(parents=True)
    (gpu / "information").write_text("Model: \t T4\nDevice Minor: \t 0\n")
    (proc / "driver/nvidia/params").write_text(_PROC_PARAMS)
    (proc / "devices").write_text(_PROC_DEVICES)


def make_libraries(driver: Path) -> None:
    """A driver root whose device nodes are still to be made."""
    libraries = driver / "usr/lib/x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    (driver / "dev").mkdir()
    source = driver / "library.c"
    source.write_text(LIBRARY)
    real = libraries / f"libcuda.so.{T4_VERSION}"
    run("cc", "-shared", "-nostdlib", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", real, source)
    (libraries / "libcuda.so.1").symlink_to(real.name)


def make_shell_image(root: Path, applets: Sequence[str] = ("sh", "sleep", "cat", "ls", "env")) -> None:
    """A container root with a static shell."""
    for name in ("bin", "usr", "proc", "dev", "sys", "etc", "tmp"):
        (root / name).mkdir(parents=True)
    busybox = shutil.which("busybox")
    assert busybox is not None
    shutil.copy(busybox, root / "bin/busybox")
    for applet in applets:
        (root / "bin" / applet).symlink_to("busybox")
