"""What NVIDIA's own programs make of the same driver and the same containers as ours: neither side is a stand-in."""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from nodeagent.components.cdi.plan_specs import SpecOptions, plan_specs
from nodeagent.edge.host.driver.driver_files import DriverFileFinder
from nodeagent.edge.host.driver.driver_libraries import DriverLibraries
from nodeagent.edge.host.driver.roots import DriverRoots
from nodeagent.model.cdi import DriverFiles
from nodeagent.model.shim import ShimDevice, ShimTable
from nodeagent.rules.cdi_names import MANAGEMENT_KIND
from tests.component.oci_shim.support import Shim, make_node, make_spec
from tests.integration.runtimes.releases import BUILD_SECONDS
from tests.integration.runtimes.toolkit import program as toolkit
from tests.support.files.driver_tree import LIBRARIES, LIBRARY_DIRECTORY, VERSION, DriverTree, encode_library
from tests.support.programs.native import NATIVE
from tests.support.samples import make_inventory

pytestmark = [
    pytest.mark.timeout(BUILD_SECONDS),
    pytest.mark.skipif(bool(toolkit.find_obstacle()), reason=toolkit.find_obstacle() or "it can be built"),
]

GPUS: Final = range(3)
VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES="
MOUNTS: Final = "/var/run/nvidia-container-devices"


# ---- the linker's cache and what containers are told ----


@pytest.fixture
def tree(tmp_path: Path) -> DriverTree:
    """A driver with libraries in more than one folder; without libnvidia-ml, which the original would load and call."""
    tree = DriverTree(tmp_path / "driver")
    tree.install(libraries={stem: soname for stem, soname in LIBRARIES.items() if stem != "libnvidia-ml.so"})
    tree.write(f"{LIBRARY_DIRECTORY}/vdpau/libvdpau_nvidia.so.{VERSION}", encode_library("libvdpau_nvidia.so.1"))
    (tree.root / "dev").mkdir()
    for name in ("nvidia0", "nvidiactl"):
        os.mknod(tree.root / "dev" / name, 0o020666, os.makedev(1, 3))
    return tree


def read_files(tree: DriverTree) -> DriverFiles:
    roots = DriverRoots(host=tree.root, driver=tree.root, dev=tree.root)
    return DriverFileFinder(libraries=DriverLibraries(machine=62)).read(roots)


def list_folders(args: Sequence[str]) -> set[str]:
    """`--folder X` and `--folder=X` are the same."""
    words = " ".join(args).replace("--folder ", "--folder=").split()
    return {word.removeprefix("--folder=") for word in words if word.startswith("--folder=")}


def test_containers_are_told_the_same_folders(tree: DriverTree, tmp_path: Path) -> None:
    """By NVIDIA_CTK_LIBCUDA_DIR, and by the linker's cache, with the plug-ins of VDPAU."""
    output = tmp_path / "theirs.yaml"
    subprocess.run(
        [
            *(toolkit.build(), "--quiet", "cdi", "generate", "--mode=management", f"--driver-root={tree.root}"),
            *(f"--dev-root={tree.root}", f"--output={output}", "--nvidia-cdi-hook-path=/usr/bin/nvidia-cdi-hook"),
        ],
        check=True,
        capture_output=True,
    )
    theirs = yaml.safe_load(output.read_text())["containerEdits"]
    requests = SpecOptions(kinds=(MANAGEMENT_KIND,), hook=Path("/hook"))
    specs = {spec.kind: spec for spec in plan_specs(make_inventory(1), read_files(tree), requests).specs}
    ours = specs[MANAGEMENT_KIND].container_edits
    assert set(ours.env) == set(theirs["env"])
    (hook,) = [each["args"] for each in theirs["hooks"] if "update-ldcache" in each["args"]]
    (own,) = [each.args for each in ours.hooks if "update-ldcache" in each.args]
    assert list_folders(own) == list_folders(hook) == {f"/{LIBRARY_DIRECTORY}", f"/{LIBRARY_DIRECTORY}/vdpau"}


# ---- what containers ask for ----


@pytest.fixture(scope="module")
def wrapper() -> Path:
    return toolkit.build(toolkit.RUNTIME)


@pytest.fixture(scope="module")
def own_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shim") / "native"
    shutil.copytree(NATIVE, folder, ignore=shutil.ignore_patterns("built", "__pycache__"))
    target = f"built/{os.uname().machine}/nodeagent-oci-shim"
    subprocess.run(["make", "--no-print-directory", "-C", folder, target], check=True, capture_output=True)
    return folder / target


@pytest.fixture
def shim(own_program: Path, tmp_path: Path) -> Shim:
    """Ours with the devices of the specification that theirs reads, in the one mode in which theirs needs no GPU."""
    shim = Shim(own_program, tmp_path)
    named = [
        ShimDevice(kind="cdi", names=(f"nvidia.com/gpu={number}",), edits=((make_node(f"nvidia{number}"),),))
        for number in GPUS
    ]
    common = ShimDevice(kind="extra", names=("common",), edits=((make_node("nvidiactl"),),))
    shim.write(ShimTable(devices=(*named, common)), mode="cdi", accept_mounts=True)
    return shim


def ask_original(wrapper: Path, shim: Shim, spec: dict[str, Any]) -> tuple[bool, list[str]]:
    """Whether the container would be started, and with which GPUs."""
    place = shim.place / "theirs"
    shutil.rmtree(place, ignore_errors=True)
    (place / "cdi").mkdir(parents=True)
    nodes = [{"path": f"/dev/nvidia{number}", "hostPath": "/dev/null"} for number in GPUS]
    devices = [{"name": str(number), "containerEdits": {"deviceNodes": [nodes[number]]}} for number in GPUS]
    (place / "cdi/gpus.json").write_text(
        json.dumps({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices})
    )
    (place / "config.toml").write_text(
        "accept-nvidia-visible-devices-as-volume-mounts = true\n"
        f'[nvidia-container-runtime]\nruntimes = ["{shim.runc}"]\nmode = "cdi"\n'
        f'[nvidia-container-runtime.modes.cdi]\nspec-dirs = ["{place}/cdi"]\n'
    )
    (place / "config.json").write_text(json.dumps(spec))
    shim.record.unlink(missing_ok=True)
    done = subprocess.run(
        [wrapper, "create", "--bundle", place, "c1"],
        env={**shim.environment, "NVIDIA_CTK_CONFIG_FILE_PATH": str(place / "config.toml")},
        capture_output=True,
        check=False,
        timeout=60,
    )
    written = json.loads((place / "config.json").read_text())
    found = [each["path"].removeprefix("/dev/") for each in written.get("linux", {}).get("devices") or []]
    assert (done.returncode == 7) is shim.record.exists(), done.stderr
    return done.returncode == 7, found


def make_mounts(*places: str, source: str = "/dev/null") -> list[dict[str, Any]]:
    return [{"source": source, "destination": f"{MOUNTS}{place}", "type": "bind"} for place in places]


@pytest.mark.parametrize(
    "spec",
    [
        make_spec(),
        make_spec(VISIBLE),
        make_spec(f"{VISIBLE}void"),
        make_spec(f"{VISIBLE}0,void"),
        make_spec(f"{VISIBLE}0"),
        make_spec(f"{VISIBLE}2,1"),
        make_spec(f"{VISIBLE}nope"),
        make_spec(f"{VISIBLE}nvidia.com/gpu=1"),
        make_spec(f"{VISIBLE}nvidia.com/gpu=1,2"),
        *(make_spec(f"{VISIBLE}{blank}1{blank},{blank}2") for blank in (" ", "\t", "\n", "\v\f\r", "\u0085", "\u00a0")),
        *(
            make_spec(f"{VISIBLE}{blank}1{blank},{blank}2")
            for blank in ("\u1680", "\u2003", "\u2028", "\u202f", "\u3000")
        ),
        *(make_spec(f"{VISIBLE}{blank}1") for blank in ("\u200b", "\u180e", "\ufeff", "\x1f", "\x7f")),
        make_spec(f"{VISIBLE}runtime.nvidia.com/gpu=0,nvidia.com/gpu=1"),
        make_spec(f"{VISIBLE}runtime.nvidia.com/gpu=0,1"),
        make_spec(f"{VISIBLE}0", "FOO"),
        make_spec(mounts=make_mounts("/1")),
        make_spec(mounts=make_mounts("//1/", "/./x/../2", "/1")),
        make_spec(f"{VISIBLE}0", mounts=make_mounts("")),
        make_spec(f"{VISIBLE}0", mounts=make_mounts("/2/..")),
        make_spec(f"{VISIBLE}0", mounts=make_mounts("/../other/2")),
        make_spec(mounts=make_mounts("/cdi/nvidia.com/gpu/1")),
        make_spec(mounts=make_mounts("/cdi/nvidia.com//./gpu=1/")),
        make_spec(f"{VISIBLE}0", mounts=make_mounts("/cdi/nvidia.com/gpu")),
        make_spec(f"{VISIBLE}0", mounts=make_mounts("/cdi/nvidia.com=1")),
        make_spec(f"{VISIBLE}0", mounts=make_mounts("/1/2")),
        make_spec(f"{VISIBLE}0", mounts=make_mounts("/1", source="/dev//./null")),
        make_spec(f"{VISIBLE}0", mounts=make_mounts("/1", source="/x/../dev/null")),
        make_spec(f"{VISIBLE}0", mounts=make_mounts("/1", source="dev/null")),
        make_spec(f"{VISIBLE}0", mounts=make_mounts("/1", source="/dev/zero")),
    ],
    ids=lambda spec: ascii([spec["process"]["env"][1:], [each["destination"] for each in spec.get("mounts", ())]]),
)
def test_requests_are_understood_as_the_original_does(wrapper: Path, shim: Shim, spec: dict[str, Any]) -> None:
    """The same containers start, with the same GPUs."""
    done = shim.create(spec)
    assert (done.status == 7, done.gpus) == ask_original(wrapper, shim, spec), done.said


EXPLAINED: Final[tuple[tuple[str, dict[str, Any], tuple[bool, list[str]], tuple[bool, list[str]]], ...]] = (
    ("who asks for nothing starts, malformed variable or not", make_spec("FOO"), (False, []), (True, [])),
    ("void is nothing, malformed variable or not", make_spec(f"{VISIBLE}void", "FOO"), (False, []), (True, [])),
    (
        "void, by whatever way it is said, is nothing; the original leaves the word to the environment",
        make_spec(f"{VISIBLE}0", mounts=make_mounts("/void")),
        (True, ["nvidia0"]),
        (True, []),
    ),
)
"""Every difference: its reason, the container, whether it starts and with which GPUs by the original, and by ours."""


@pytest.mark.parametrize(("reason", "spec", "theirs", "ours"), EXPLAINED, ids=[each[0] for each in EXPLAINED])
def test_what_differs_from_the_original_has_a_reason(
    wrapper: Path,
    shim: Shim,
    reason: str,
    spec: dict[str, Any],
    theirs: tuple[bool, list[str]],
    ours: tuple[bool, list[str]],
) -> None:
    assert ask_original(wrapper, shim, spec) == theirs, reason
    done = shim.create(spec)
    assert (done.status == 7, done.gpus) == ours, reason
