"""The runtime shim before a low-level runtime that ends at once: what it adds to the creation of a container.

A specification of 64 KiB, a node of 16 GPUs with 200 libraries. The runtime alone and the runtime behind the shim are
started in turns, and each pair is one difference, so that a busy machine makes both longer. The bundle is in memory, as
engines have theirs below /run: to replace a file on a disk takes as long again.

NVIDIA's own program is measured in the same way where it has been built: `make bench PEERS=1` does that. It reads the
same specifications, from files, in its mode `cdi`.
"""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from nodeagent.components.cdi.keep_shim import plan_policy
from nodeagent.components.cdi.plan_shim import plan_shim_table
from nodeagent.components.cdi.plan_specs import SpecOptions, plan_specs, render_specs
from nodeagent.config.schema import Settings
from nodeagent.edge.host.driver.driver_files import DriverFileFinder
from nodeagent.edge.host.driver.driver_libraries import DriverLibraries
from nodeagent.edge.host.driver.roots import DriverRoots
from nodeagent.edge.host.shim.table_file import write_table
from nodeagent.model.shim import ShimEdits, ShimNode, ShimTable
from nodeagent.rules.cdi_names import PUBLIC_KINDS
from tests.bench.pieces.cdi import LIBRARY_COUNT
from tests.bench.rows import Row
from tests.integration.runtimes.toolkit.program import RUNTIME, TOOLKIT
from tests.support.files.driver_tree import LIBRARIES, DriverTree, look_at_file
from tests.support.programs.native import NATIVE
from tests.support.samples import make_inventory

ROUNDS: Final = 300
GPUS: Final = 16
SPEC_BYTES: Final = 64 * 1024
NOTHING: Final = "int main(void) { return 0; }\n"
"""The low-level runtime: what it takes itself is not the shim's."""
STOCK: Final = TOOLKIT.programs / RUNTIME
OURS, THEIRS = "shim", "NVIDIA's"
MEMORY: Final = Path("/dev/shm")  # what lies below is made by `tempfile`
PAIRS: Final = Path(__file__).parent / "pairs.c"


def measure(rounds: int = ROUNDS) -> list[Row]:
    """Every number of this part; nothing without the compilers."""
    if not all(map(shutil.which, ("cc", f"{os.uname().machine}-linux-musl-gcc"))):
        return []
    memory = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="nodeagent-bench-", dir=memory) as directory:
        return _measure(Path(directory), rounds)


def _measure(place: Path, rounds: int) -> list[Row]:
    shim = _build(place)
    bundle = place / "bundle"
    bundle.mkdir()
    _write_table(place)
    asking, plain = place / "asking.json", place / "plain.json"
    asking.write_text(_render_spec("NVIDIA_VISIBLE_DEVICES=all"))
    plain.write_text(_render_spec())
    create = ["--root", str(place), "create", "--bundle", str(bundle), "c1"]
    cases = {
        "create, all GPUs": (asking, create),
        "create, none": (plain, create),
        "delete": (plain, ["--root", str(place), "delete", "c1"]),
    }
    rows = []
    for what, (original, words) in cases.items():
        millis, busy, mebibytes = _compare(place, shim, original, bundle / "config.json", rounds, words)
        rows += [
            Row(f"{OURS}, added to {what}", "ms", millis, limit=2),
            Row(f"{OURS}, added to {what}, CPU", "ms", busy, limit=2),
            Row(f"{OURS}, memory added to {what}", "MiB", mebibytes, limit=1),
        ]
        if STOCK.exists():
            millis, busy, mebibytes = _compare(place, STOCK, original, bundle / "config.json", rounds, words)
            rows += [
                Row(f"{THEIRS}, added to {what}", "ms", millis),
                Row(f"{THEIRS}, added to {what}, CPU", "ms", busy),
                Row(f"{THEIRS}, memory added to {what}", "MiB", mebibytes),
            ]
    return [*rows, Row("shim, size of the program", "KiB", [shim.stat().st_size / 1024], limit=300)]


def _compare(
    place: Path, program: Path, original: Path, copy: Path, rounds: int, words: list[str]
) -> tuple[list[float], ...]:
    """What the program adds in each turn: milliseconds, those of a processor, and MiB."""
    programs = [original, copy, place / "bin/runc", program]
    command = [str(place / "pairs"), str(rounds), *map(str, programs), *words]
    environment = {
        "PATH": str(place / "bin"),
        "NODEAGENT_SHIM_DIR": str(place / "shim"),
        "NVIDIA_CTK_CONFIG_FILE_PATH": str(place / "config.toml"),
    }
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    turns = [[int(number) for number in line.split()] for line in done.stdout.splitlines()]
    added = [[behind - alone for alone, behind in zip(turn[:3], turn[3:], strict=True)] for turn in turns]
    return (
        [nanoseconds / 1e6 for nanoseconds, _, _ in added],
        [nanoseconds / 1e6 for _, nanoseconds, _ in added],
        [max(0, kib) / 1024 for _, _, kib in added],
    )


def _build(place: Path) -> Path:
    """The shim; beside it a runtime that does nothing, and what starts both in turns."""
    folder = shutil.copytree(NATIVE, place / "native", ignore=shutil.ignore_patterns("built", "__pycache__"))
    target = f"built/{os.uname().machine}/nodeagent-oci-shim"
    subprocess.run(["make", "--no-print-directory", "-C", folder, target], check=True, capture_output=True)
    (place / "bin").mkdir()
    (place / "nothing.c").write_text(NOTHING)
    for source, program in ((place / "nothing.c", place / "bin/runc"), (PAIRS, place / "pairs")):
        subprocess.run(["cc", "-static", "-O2", "-o", program, source], check=True)
    return folder / target


def _write_table(place: Path) -> None:
    """Of a whole node, as the agent makes it."""
    tree = DriverTree(place / "driver")
    more = {f"libnvidia-part{number}.so": f"libnvidia-part{number}.so.1" for number in range(LIBRARY_COUNT)}
    tree.install(libraries=dict([*LIBRARIES.items(), *more.items()][:LIBRARY_COUNT]))
    tree.add_nodes([*(f"nvidia{minor}" for minor in range(GPUS)), "nvidiactl", "nvidia-uvm"])
    roots = DriverRoots(host=tree.root, driver=tree.root, dev=tree.root)
    files = DriverFileFinder(libraries=DriverLibraries(machine=62), look=look_at_file).read(roots)
    inventory = make_inventory(GPUS)
    requests = SpecOptions(kinds=PUBLIC_KINDS, groups=True, public_groups=True)
    plan = plan_specs(inventory, files, requests)
    table = plan_shim_table(inventory, files, plan.specs, plan_policy(Settings().shim))
    (place / "shim").mkdir()
    write_table(place / "shim", _give_real_nodes(table))
    (place / "cdi").mkdir()
    for name, content in render_specs(plan).items():
        document = json.loads(content)
        for edits in (document["containerEdits"], *(each["containerEdits"] for each in document["devices"])):
            for node in edits.get("deviceNodes", ()):
                node["hostPath"] = "/dev/null"
        (place / "cdi" / name).write_text(json.dumps(document))
    (place / "config.toml").write_text(
        f'[nvidia-container-runtime]\nruntimes = ["{place}/bin/runc"]\nmode = "cdi"\n'
        f'[nvidia-container-runtime.modes.cdi]\nspec-dirs = ["{place}/cdi"]\n'
    )


def _give_real_nodes(table: ShimTable) -> ShimTable:
    """The made-up driver's nodes are plain files; a node of this machine stands for each."""

    def give(edits: ShimEdits) -> ShimEdits:
        return tuple(replace(one, host_path="/dev/null") if isinstance(one, ShimNode) else one for one in edits)

    devices = tuple(replace(each, edits=tuple(map(give, each.edits))) for each in table.devices)
    return replace(table, devices=devices)


def _render_spec(*env: str) -> str:
    """As an engine writes it, made as long as a large one by what the container is told."""
    process = {"user": {"uid": 0}, "env": ["PATH=/bin", *env], "args": ["sh"], "cwd": "/"}
    spec = {
        "ociVersion": "1.2.0",
        "process": process,
        "root": {"path": "rootfs"},
        "mounts": [{"destination": f"/mounted/{number}", "source": f"/var/lib/{number}"} for number in range(100)],
        "linux": {"resources": {"devices": [{"allow": False, "access": "rwm"}]}, "seccomp": {"syscalls": []}},
    }
    calls = spec["linux"]["seccomp"]["syscalls"]  # type: ignore[index]  # what is made above
    while len(json.dumps(spec)) < SPEC_BYTES:
        calls.append({"names": [f"call{number}" for number in range(40)], "action": "SCMP_ACT_ALLOW"})
    return json.dumps(spec)
