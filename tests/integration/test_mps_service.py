"""What docs/mps.md adds to the unit is what daemons need: tried under the unit itself, by a real systemd."""

import site
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.test_systemd import UNIT, read_addition
from tests.fakes.mps import FakeMps
from tests.integration.cluster.layout import CHECKOUT
from tests.support.programs.systemd import PYTHON, Systemd, find_obstacle, running_systemd

PROBE = """
import sys
from pathlib import Path
import anyio
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.mps.host import HostMps, MpsHostSettings
from nodeagent.model.mps import MpsPlace

async def main():
    worker = WorkerThread("files")
    host = HostMps(MpsHostSettings(lambda: Path("/"), Path(sys.argv[1]), 1 << 20), worker)
    place = MpsPlace(root=Path("/run/nvidia/mps"), name="x", has_own_memory=True)
    found = await host.find(place)
    pid = found or await host.start(place, ())
    (place.shared_memory / "segment").touch()
    seen = Path(f"/proc/{pid}/root", "dev/shm/segment").exists()
    told = await host.ask(place, ("get_default_active_thread_percentage",))
    worker.close()
    return " ".join(("found" if found else "started", str(pid), str(seen), *told))

try:
    said = anyio.run(main)
except Exception as error:
    said = f"failed: {error}"
with open(sys.argv[2], "a") as file:
    file.write(said + "\\n")
sys.exit(said.startswith("failed"))
"""
"""The agent's hand on daemons without the agent: starts one, or finds it, and asks it."""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[tuple[Systemd, Path]]:
    """A systemd with the unit, whose program is the probe."""
    assert find_obstacle() == ""
    root, shared = tmp_path / "root", tmp_path / "shared"
    root.mkdir()
    fake = FakeMps(shared / "driver")
    (shared / "probe.py").write_text(PROBE)
    packages = Path(site.getsitepackages()[0])
    said = shared / "said"
    environment = f"ReadWritePaths={shared}\nEnvironment=PYTHONPATH={CHECKOUT}:{packages}"
    command = f"{sys._base_executable} {shared / 'probe.py'} {fake.program} {said}"  # type: ignore[attr-defined]  # no public name
    share = (shared, PYTHON, CHECKOUT, packages.parents[2])
    with running_systemd(root, share=tuple(dict.fromkeys(share))) as systemd:
        # What is shared with it may lie where the unit hides everything; neither is what is tried here.
        probe = f"[Service]\nType=oneshot\nRestart=no\nWatchdogSec=0\nExecStart=\nExecStart={command}\n{environment}\n"
        systemd.write("/etc/systemd/system/nodeagent.service", UNIT.read_text())
        systemd.write("/etc/systemd/system/nodeagent.service.d/zz.conf", f"{probe}ProtectHome=no\nPrivateTmp=no\n")
        systemd.run("mkdir", "-p", "/run/nvidia", "/var/lib/kubelet/device-plugins", "/run/cdi")
        yield systemd, said


def test_daemons_outlive_the_unit_and_have_shared_memory_of_their_own(service: tuple[Systemd, Path]) -> None:
    """With what is added; without it none can be started, so that nothing is added for nothing."""
    systemd, told = service
    systemd.run("systemctl", "daemon-reload")
    assert systemd.call("systemctl", "start", "nodeagent.service").returncode != 0
    assert "mount namespace of its own" in told.read_text()
    systemd.write("/etc/systemd/system/nodeagent.service.d/mps.conf", read_addition("mps.md"))
    systemd.run("systemctl", "daemon-reload")
    systemd.run("systemctl", "start", "nodeagent.service")
    systemd.run("systemctl", "restart", "nodeagent.service")
    (_, first, second) = (line.split() for line in told.read_text().splitlines())
    assert (first[0], first[2:], second[2:]) == ("started", ["True", "100.0"], ["True", "100.0"])
    assert second[:2] == ["found", first[1]]
    assert not systemd.path("/dev/shm/segment").exists()
