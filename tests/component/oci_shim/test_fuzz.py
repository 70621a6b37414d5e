"""Parsers: hostile inputs by the ten thousand under sanitizers, each allocation refused, libFuzzer where it is."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from nodeagent.edge.host.shim.table_file import render_table, write_table
from tests.component.oci_shim.conftest import CHECKED_SOURCES, CHECKS, SOURCES
from tests.component.oci_shim.support import TABLE, make_spec
from tests.support.examples import examples

pytestmark = [
    pytest.mark.long,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("cc") is None, reason="the shim is C"),
    pytest.mark.may_block("nothing here runs on an event loop"),
]
HARNESS = Path(__file__).parent / "src" / "in_process.c"
TAKEN = ["-Dmain=shim_main", "-Dexit=shim_exit"]
REQUESTS = (
    "NVIDIA_VISIBLE_DEVICES=0,MIG-a,nvidia.com/gpu=1",
    "NVIDIA_DRIVER_CAPABILITIES=compute,graphics",
    "NVIDIA_REQUIRE_CUDA=cuda>=12.0 brand=tesla,driver>=470",
    "CUDA_VERSION=12.4.1",
    "NVIDIA_IMEX_CHANNELS=3",
    "NVIDIA_GDS=enabled",
)
MOUNT = {"destination": "/var/run/nvidia-container-devices/0", "source": "/dev/null"}


def build(place: Path, compiler: str, *flags: str) -> Path:
    """The parsers with the harness around them, which has memory and an exit of its own."""
    objects = []
    for source in (*CHECKED_SOURCES, HARNESS):
        target = place / f"{source.stem}.o"
        own = [f"-I{SOURCES}"] if source == HARNESS else TAKEN
        subprocess.run([compiler, *CHECKS, *flags, *own, "-c", "-o", target, source], check=True)
        objects.append(target)
    program = place / "in_process"
    subprocess.run([compiler, *CHECKS, *flags, "-o", program, *objects], check=True)
    return program


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("in-process")


@pytest.fixture(scope="module")
def seeds(place: Path) -> list[Path]:
    """One of each kind, and a configuration in each of the ways in which it may ask."""
    write_table(place, TABLE)
    spec = make_spec(*REQUESTS, privileged=True, mounts=[MOUNT], annotations={"cdi.k8s.io/x": "nvidia.com/gpu=0"})
    contents = {
        "wishes": b"j" + json.dumps(spec).encode(),
        "one": b"j" + json.dumps(make_spec("NVIDIA_VISIBLE_DEVICES=all"), indent=1).encode(),
        "table": b"t" + render_table(TABLE),
        "sums": b"s" + render_table(TABLE)[:300],
        "arguments": b"a" + b"\0".join([b"--root", b"/r", b"--log=/l", b"create", b"-b", b"/bundle", b"c"]),
    }
    folder = place / "seeds"
    folder.mkdir()
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return sorted(folder.iterdir())


def run(place: Path, program: Path, *words: str | Path) -> str:
    """What it says; what the shim says to people goes nowhere, what sanitizers say is told."""
    options = {"ASAN_OPTIONS": "detect_leaks=0:log_path=stdout", "UBSAN_OPTIONS": "halt_on_error=1:log_path=stdout"}
    environment = {"PATH": os.environ["PATH"], "NODEAGENT_SHIM_DIR": str(place), "TMPDIR": str(place), **options}
    done = subprocess.run(
        [program, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, check=False, timeout=600
    )
    told = done.stdout.decode("utf-8", "replace")
    assert done.returncode == 0, told
    return told


@pytest.fixture(scope="module")
def program(place: Path) -> Path:
    return build(place, "cc", "-DIN_PROCESS_ALONE")


@pytest.mark.parametrize("seed", [1, 2])
def test_hostile_inputs_do_no_harm(seed: int, place: Path, program: Path, seeds: list[Path]) -> None:
    """Bits and bytes changed, pieces put in and taken out; what comes out of a configuration is one again."""
    configurations = [each for each in seeds if each.name in {"wishes", "one"}]
    others = [each for each in seeds if each not in configurations]
    run(place, program, "mutate", str(seed), str(examples(50_000)), *configurations)
    run(place, program, "mutate", str(seed), str(examples(2_000)), *others)


def test_each_allocation_may_fail(place: Path, program: Path, seeds: list[Path]) -> None:
    """Every one of them, in turn: it says so and ends."""
    requests = next(each for each in seeds if each.name == "wishes")
    assert int(run(place, program, "starve", requests)) > 300


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("clang") is None, reason="wants clang, which brings libFuzzer: apt-get install clang")
def test_a_fuzzer_that_sees_the_branches_finds_nothing(place: Path, tmp_path: Path, seeds: list[Path]) -> None:
    """For a while each time; what it finds interesting would be kept in a folder of one's own."""
    program = build(tmp_path, "clang", "-fsanitize=fuzzer")
    run(place, program, "-runs=20000", "-seed=1", "-close_fd_mask=2", f"-artifact_prefix={tmp_path}/", seeds[0].parent)
