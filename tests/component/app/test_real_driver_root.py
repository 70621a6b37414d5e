"""The agent on the root of a real driver, 535 and 550, whose kernel module is not loaded: run, status, doctor, CDI."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from nodeagent_sim.gpus import profile as profiles
from tests.contract.libraries import HARMLESS, skip_unless_harmless
from tests.originals.packages import DRIVERS, LIBRARIES, REASON, find_driver
from tests.support.programs.agent_process import run_command, running_agent

pytestmark = pytest.mark.long

NODES: Final = ("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
WITH_NODES: Final = (
    *HARMLESS,
    "--mount",
    "sh",
    "-c",
    'for node in "$0"/*; do mount --bind /dev/null "$node"; done; exec "$@"',
)
"""In front of a command: files of a folder, which is the next word, are device nodes for it."""
GPU: Final = "0000:3b:00.0"


@pytest.fixture(params=DRIVERS)
def root(request: pytest.FixtureRequest) -> Path:
    """The driver's packages, unpacked; what is run on them can make no device node on this machine."""
    skip_unless_harmless()
    found = find_driver(request.param)
    if found is None:
        pytest.skip(REASON)
    return found


def find_version(root: Path) -> str:
    (library,) = (root / LIBRARIES).glob("libcuda.so.*.*")
    return library.name.removeprefix("libcuda.so.")


def plug_gpu(sys_dir: Path) -> None:
    place = sys_dir / "bus/pci/devices" / GPU
    place.mkdir(parents=True)
    for name, value in (("vendor", "0x10de"), ("device", "0x2330"), ("class", "0x030200"), ("numa_node", "0")):
        (place / name).write_text(f"{value}\n")


def render_sets(root: Path, directory: Path) -> Sequence[str]:
    return ("--set", f"driver.root={root}", "--set", f"node.sys_dir={directory / 'sys'}")


def test_a_node_without_a_gpu_waits_and_says_why(root: Path, short_dir: Path) -> None:
    """The agent serves, names the missing GPU, and ends when it is asked to; so does the status command."""
    (short_dir / "sys").mkdir()
    sets = render_sets(root, short_dir)
    with running_agent(short_dir, *sets, front=HARMLESS) as agent:
        agent.wait_for("/api/v1/conditions", "driver-no-hardware")
        driver = agent.get_json("/api/v1/driver")
        assert driver["phase"] == "no_hardware"
        said = run_command(short_dir, "status", "--set", f"node.run_dir={short_dir / 'run'}", front=HARMLESS)
        assert "no NVIDIA GPU on the PCI bus" in said.stdout, said
        assert agent.process.poll() is None
    assert agent.process.returncode == 0


def test_a_gpu_without_its_kernel_module_is_told_as_such(root: Path, short_dir: Path) -> None:
    """The library is no part of it: NVIDIA's own is found below the root, loaded, and says the same."""
    plug_gpu(short_dir / "sys")
    with running_agent(short_dir, *render_sets(root, short_dir), front=HARMLESS) as agent:
        driver = json.loads(agent.wait_for("/api/v1/driver", '"not_loaded"'))
        assert driver["detail"] == "1 on the PCI bus, no /sys/module/nvidia"
        assert driver["library_path"] == str((root / LIBRARIES / "libnvidia-ml.so.1").resolve())
        agent.wait_for("/api/v1/conditions", "driver-not-loaded")
    assert agent.process.returncode == 0


def test_a_kernel_module_of_another_version_is_told_with_both(root: Path, short_dir: Path) -> None:
    """The library's is read off its own file."""
    plug_gpu(short_dir / "sys")
    module = short_dir / "sys/module/nvidia"
    module.mkdir(parents=True)
    (module / "version").write_text("570.172.08\n")
    proc_dir = short_dir / "proc"
    proc_dir.mkdir()
    (proc_dir / "modules").write_text("nvidia 54000000 0 - Live 0x0\n")
    sets = (*render_sets(root, short_dir), "--set", f"node.proc_dir={proc_dir}")
    with running_agent(short_dir, *sets, front=HARMLESS) as agent:
        driver = json.loads(agent.wait_for("/api/v1/driver", '"version_mismatch"'))
        assert driver["detail"] == f"library {find_version(root)}, kernel module 570.172.08"


def test_doctor_knows_the_driver_by_its_files_and_its_library(root: Path, short_dir: Path) -> None:
    plug_gpu(short_dir / "sys")
    done = run_command(short_dir, "doctor", *render_sets(root, short_dir), front=HARMLESS)
    assert f"driver {find_version(root)}" in done.stdout, done
    assert "nvmlInitWithFlags: the driver is not loaded (NVML code 9)" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_the_specification_has_all_of_the_root_and_nothing_twice(root: Path, short_dir: Path) -> None:
    """Every library of the driver's version, each by the names that programs ask for; it is judged valid."""
    specification = generate(root, short_dir)
    version = find_version(root)
    mounts = specification["containerEdits"]["mounts"]
    inside = [mount["containerPath"] for mount in mounts]
    assert len(inside) == len(set(inside))
    folders = (root / LIBRARIES, root / LIBRARIES.parent.parent)
    libraries = {str(path) for folder in folders for path in folder.glob(f"*.so.{version}")}
    assert len(libraries) > 15
    assert libraries - {mount["hostPath"] for mount in mounts} == set()
    links = {link.name for folder in folders for link in folder.glob("*.so.[0-9]") if link.is_symlink()}
    assert links - {Path(path).name for path in inside} == set()
    assert all(Path(mount["hostPath"]).exists() for mount in mounts)
    assert {Path(path).name for path in inside} >= {"nvidia-cuda-mps-control", "nvidia-cuda-mps-server"}


def generate(root: Path, directory: Path) -> dict[str, Any]:
    """The specification of a made-up T4 with the files of this root, written and validated by the command line."""
    nodes = directory / "root/dev"
    nodes.mkdir(parents=True)
    for name in NODES:
        (nodes / name).touch()
    text = (Path(profiles.__file__).parent / "profiles/t4.yaml").read_text()
    profile = directory / "t4.yaml"
    profile.write_text(re.sub(r"driver: \{version: [^,]+,", f"driver: {{version: {find_version(root)},", text))
    path = directory / "specification.json"
    made = run_command(
        directory,
        *("cdi", "generate", "--gpus", f"simulated:{profile}", "-o", str(path)),
        *("--set", f"driver.root={root}", "--set", f"driver.dev_root={nodes.parent}"),
        front=(*WITH_NODES, str(nodes)),
    )
    assert (made.returncode, made.stdout, made.stderr) == (0, f"written: {path}\n", ""), made
    judged = run_command(directory, "cdi", "validate", str(path))
    assert (judged.returncode, judged.stdout) == (0, f"valid: {path} (nvidia.com/gpu)\n"), judged
    specification: dict[str, Any] = json.loads(path.read_text())
    return specification
