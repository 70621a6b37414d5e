"""`make native`, in a copy of the sources: every program for every processor."""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from nodeagent.edge.host.files.host_program import BUILT
from tests.support.programs.native import MACHINES, NATIVE, PROGRAMS

ELF_MACHINES = {"x86_64": 62, "aarch64": 183}
CROSS = [machine for machine in MACHINES if machine != platform.machine()]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("cc") is None, reason="the programs are C"),
    pytest.mark.may_block("nothing here runs on an event loop"),
]


def copy_sources(place: Path) -> Path:
    return Path(shutil.copytree(NATIVE, place / "native", ignore=shutil.ignore_patterns("built", "__pycache__")))


def make(folder: Path, *words: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    environ = None if path is None else {"PATH": path}
    command = [str(shutil.which("make")), "--no-print-directory", "-C", str(folder), *words]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


def can_build(machine: str) -> bool:
    compilers = ("cc" if machine not in CROSS else f"{machine}-linux-gnu-gcc", f"{machine}-linux-musl-gcc")
    return all(map(shutil.which, compilers))


def read_machine(program: Path) -> int:
    head = program.read_bytes()[:20]
    assert head[:4] == b"\x7fELF"
    return int.from_bytes(head[18:20], "little")


@pytest.mark.nightly
@pytest.mark.timeout(600)  # four builds of each program
def test_every_program_is_built_for_every_processor_and_the_same_twice(tmp_path: Path) -> None:
    """Where it is built leaves no trace in it."""
    machines = [machine for machine in MACHINES if can_build(machine)]
    if not machines:
        pytest.skip("no processor has both compilers: apt-get install musl-dev")
    built = []
    for place in (tmp_path, tmp_path / "elsewhere"):
        folder = copy_sources(place)
        done = make(folder, f"MACHINES={' '.join(machines)}")
        assert done.returncode == 0, done.stderr
        programs = {(machine, name): folder / "built" / machine / name for machine in machines for name in PROGRAMS}
        assert {place: read_machine(path) for place, path in programs.items()} == {
            (machine, name): ELF_MACHINES[machine] for machine, name in programs
        }
        built.append({place: path.read_bytes() for place, path in programs.items()})
    assert built[0] == built[1]


def test_the_agent_looks_where_make_puts_it() -> None:
    """The program of this machine."""
    assert NATIVE / "built" / platform.machine() == BUILT


@pytest.mark.parametrize(
    ("program", "compiler", "package"),
    [("nodeagent-cdi-hook", "gnu", "gcc-{}-linux-gnu"), ("nodeagent-oci-shim", "musl", "musl-dev:{}")],
)
def test_missing_cross_compiler_is_named_with_its_package(
    program: str, compiler: str, package: str, tmp_path: Path
) -> None:
    """In one line, and nothing is left half built."""
    folder = copy_sources(tmp_path)
    place = tmp_path / "bin"
    place.mkdir()
    for name in ("sh", "make", "uname", "mkdir", "rm"):
        (place / name).symlink_to(str(shutil.which(name)))
    done = make(folder, f"built/{CROSS[0]}/{program}", path=str(place))
    assert done.returncode != 0
    assert f"{program} for {CROSS[0]} needs {CROSS[0]}-linux-{compiler}-gcc: " in done.stderr
    names = (CROSS[0].replace("_", "-"), {"x86_64": "amd64", "aarch64": "arm64"}[CROSS[0]])
    assert [each for each in names if f"apt-get install {package.format(each)}" in done.stderr]
    assert not (folder / "built").exists()


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("qemu-aarch64"), reason="wants the emulator of user programs")
@pytest.mark.skipif(not shutil.which("aarch64-linux-gnu-gcc"), reason="wants the cross compiler")
def test_the_hook_starts_on_the_other_processor(tmp_path: Path) -> None:
    """The emulator has no `openat2`, without which the hook touches nothing and says so."""
    folder = copy_sources(tmp_path)
    assert make(folder, "built/aarch64/nodeagent-cdi-hook").returncode == 0
    root = tmp_path / "root"
    root.mkdir()
    done = subprocess.run(
        ["qemu-aarch64", folder / "built/aarch64/nodeagent-cdi-hook", "create-symlinks", "--link=a::/usr/lib/b"],
        input=f'{{"root": "{root}"}}',
        capture_output=True,
        text=True,
        check=False,
    )
    made = (root / "usr/lib/b").is_symlink()
    assert (done.returncode == 0) is made
    assert made or "nodeagent-cdi-hook: " in done.stderr
