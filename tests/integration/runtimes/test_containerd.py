"""Our specifications and our configuration, judged by a real containerd."""

import shutil
import tomllib
from pathlib import Path

import pytest

from nodeagent.components.runtime.choose import ChosenRuntime
from nodeagent.components.runtime.plan import Wanted, apply_to_tree
from nodeagent.components.runtime.plan_containerd import plan_containerd
from nodeagent.components.runtime.withdraw import withdraw
from nodeagent.edge.container_runtime.change_files import RuntimeFiles
from nodeagent.edge.container_runtime.config_files import read_config_tree
from nodeagent.edge.container_runtime.errors import ConfigRefused
from nodeagent.edge.container_runtime.tools import check_config
from nodeagent.model.runtime import ConfigFile, ConfigTree, RuntimeFlavour, RuntimeKind
from tests.integration.runtimes.support import find_programs, generate, make_driver, make_root, run, run_container

PROGRAMS = find_programs()
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(300),
    pytest.mark.skipif(PROGRAMS is None, reason="no containerd here: build the cluster's programs first"),
]
V2 = """# by hand
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  enable_cdi = false # off
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = true
"""
V3 = V2.replace("version = 2", "version = 3").replace("io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")
V1 = V2.replace("version = 2\n", "").replace('"io.containerd.grpc.v1.cri"', "cri")
RUNTIME_SECTION = "io.containerd.cri.v1.runtime"


@pytest.fixture
def programs() -> str:
    assert PROGRAMS is not None
    return PROGRAMS


@pytest.mark.parametrize("compiler", [name for name in ("cc", "musl-gcc") if shutil.which(name)])
def test_a_container_finds_the_driver_without_any_hook(programs: str, short_dir: Path, compiler: str) -> None:
    """A program linked against glibc, and one against musl, loads the library and has exactly its own GPU."""
    generate(make_driver(short_dir / "driver"), short_dir / "nvidia.json")
    root = make_root(short_dir / "image", compiler)
    code, said = run_container(programs, short_dir / "c", short_dir / "nvidia.json", root, ["nvidia.com/gpu=0"])
    assert code == 0, said
    lines = said.splitlines()
    assert "version: 12080" in lines
    assert sorted(line for line in lines if line.startswith("node:")) == [
        "node: nvidia-uvm",
        "node: nvidia0",
        "node: nvidiactl",
    ]
    assert "visible: void" in lines
    assert "opened: yes" in lines


def test_a_gpu_that_was_left_out_is_refused_by_name(programs: str, short_dir: Path) -> None:
    """Its neighbours work; it has no name."""
    generate(make_driver(short_dir / "driver"), short_dir / "nvidia.json")
    root = make_root(short_dir / "image", "cc")
    code, said = run_container(programs, short_dir / "c", short_dir / "nvidia.json", root, ["nvidia.com/gpu=5"])
    assert code != 0
    assert "unresolvable CDI devices nvidia.com/gpu=5" in said


def choose(main: Path, programs: str) -> ChosenRuntime:
    version = run(f"{programs}/containerd", "--version").split()[2].removeprefix("v")
    return ChosenRuntime(
        kind=RuntimeKind.CONTAINERD,
        flavour=RuntimeFlavour.PLAIN,
        socket="/run/x.sock",
        config_file=str(main),
        version=version,
        executable=f"{programs}/containerd",
    )


@pytest.mark.parametrize("text", [V1, V2, V3], ids=["v1", "v2", "v3"])
def test_every_configuration_version_is_read_back(programs: str, short_dir: Path, text: str) -> None:
    """After our change containerd itself says: CDI on, the class there, everything else as it was; and back again."""
    main = short_dir / "config.toml"
    main.write_text(text)
    runtime = choose(main, programs)
    tree = read_config_tree(RuntimeKind.CONTAINERD, str(main))
    plan = plan_containerd(runtime, tree, Wanted(cdi=True, wrapper="/usr/bin/nvidia-container-runtime"))
    assert plan.problem == ""
    assert check_config(runtime.kind, runtime.executable, apply_to_tree(tree, plan.changes))
    files = RuntimeFiles(short_dir / "state")
    files.apply(plan.changes)
    dumped = tomllib.loads(run(f"{programs}/containerd", "--config", main, "config", "dump"))
    section = dumped["plugins"][RUNTIME_SECTION]
    assert section["enable_cdi"] is True
    runtimes = section["containerd"]["runtimes"]
    assert runtimes["runc"]["options"]["SystemdCgroup"] is True
    assert runtimes["nvidia"]["options"]["SystemdCgroup"] is True
    assert runtimes["nvidia"]["options"]["BinaryName"] == "/usr/bin/nvidia-container-runtime"
    files.restore(withdraw)
    assert main.read_text() == text
    assert not list(short_dir.glob("conf.d/*"))


def test_a_change_that_would_stop_the_daemon_is_refused(programs: str) -> None:
    """The real program is asked before anything is written."""
    tree = ConfigTree(files=(ConfigFile(path="/etc/containerd/config.toml", content=b"version = 99\n"),))
    with pytest.raises(ConfigRefused, match="version"):
        check_config(RuntimeKind.CONTAINERD, f"{programs}/containerd", tree)
