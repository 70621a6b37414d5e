"""MicroK8s and k3s make containerd's configuration themselves: a real containerd does as asked with what they make.

Their own start is played by the few lines of it that make the file: `sed` for MicroK8s, nothing for k3s.
"""

import subprocess
from pathlib import Path

import pytest

from nodeagent.model.runtime import RuntimeFlavour
from tests.integration.runtimes.configuration import CRI3, MAIN, OFF, Configuration, full
from tests.integration.runtimes.daemon import Served, serve
from tests.integration.runtimes.matrix import SHIM, Node, Program, find_faults
from tests.integration.runtimes.releases import BUILD_SECONDS, find_cluster_program
from tests.integration.runtimes.test_matrix import PROGRAMS
from tests.unit.components.runtime.test_plan_templates import MICROK8S

pytestmark = pytest.mark.timeout(BUILD_SECONDS)
TEMPLATE = "containerd-template.toml"


@pytest.fixture(scope="module", params=PROGRAMS)
def program(request: pytest.FixtureRequest) -> Program:
    return Program.of(request.param())


class MicroK8sNode(Node):
    """One whose containerd reads what the start script makes of the template."""

    def __init__(self, program: Program, wants: str, place: Path, *, has_gpu_addon: bool) -> None:
        configuration = Configuration("microk8s", {TEMPLATE: MICROK8S}, wants)
        super().__init__(program, configuration, place, RuntimeFlavour.MICROK8S, TEMPLATE)
        self._place = place
        self._values = {
            "RUNTIME": "nvidia-container-runtime" if has_gpu_addon else "runc",
            "RUNTIME_TYPE": "io.containerd.runc.v2",
            "SNAPSHOTTER": "overlayfs",
            "SNAP_DATA": str(place),
        }
        if has_gpu_addon:
            lock = place / "var/lock/gpu"
            lock.parent.mkdir(parents=True)
            lock.touch()

    def serve(self) -> Served:
        """What containerd makes of the file that the script writes anew at each start."""
        made = self._place / "containerd.toml"
        words = ";".join(f"s@${{{name}}}@{value}@g" for name, value in self._values.items())
        with made.open("w") as output:
            subprocess.run(["sed", words, str(self.main)], check=True, stdout=output)
        return serve(self.program.path, made)


@pytest.mark.parametrize("wants", ["class", "shim", "default"])
@pytest.mark.parametrize("has_gpu_addon", [False, True], ids=["plain", "gpu addon"])
def test_microk8s_template_is_changed_and_given_back(
    program: Program, short_dir: Path, wants: str, has_gpu_addon: bool
) -> None:
    """CDI is on, the class is there, its own runtimes and its default stay, and the revert is to the byte."""
    node = MicroK8sNode(program, wants, short_dir, has_gpu_addon=has_gpu_addon)
    try:
        assert find_faults(node) == []
    finally:
        node.close()


def test_k3s_reads_our_drop_in_and_its_own_file_is_not_touched(short_dir: Path) -> None:
    """In the directory that it imports, which it leaves alone when it writes its own file anew."""
    program = Program.of(find_cluster_program())
    text = f'imports = ["/@main@/config-v3.toml.d/*.toml"]\n{full(3, CRI3, OFF)}'
    node = Node(program, Configuration("k3s", {MAIN: text}, "shim"), short_dir, RuntimeFlavour.K3S)
    try:
        generated = node.main.read_bytes()
        assert node.configure().written
        directory = "config-v3.toml.d"
        assert sorted(node.read_files()) == [directory, f"{directory}/zz-nodeagent.toml", MAIN]
        assert node.main.read_bytes() == generated
        served = node.serve()
        assert served.runtimes["nvidia"]["options"]["BinaryName"] == SHIM
        node.unconfigure()
        assert find_faults(node) == []
    finally:
        node.close()
