"""The shim on a host: its program, its names and its table, and what becomes of what others do to them."""

import shutil
from pathlib import Path
from typing import TypeVar

import pytest
from msgspec.structs import replace

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.errors import FileNotWritten, HostStuck, ProgramMissing, ProgramNameTaken, ProgramUnfit
from nodeagent.edge.host.machine.host_paths import HostPaths
from nodeagent.edge.host.shim.shim_host import SHIM, HostShim
from nodeagent.model.shim import ShimTable
from tests.component.oci_shim.support import TABLE, Shim, make_spec
from tests.support.threads import StuckThread

T = TypeVar("T")

SCRIPT = '#!/bin/sh\n[ "$*" = self-check ] && {outcome}\n'


def write_script(path: Path, outcome: str) -> bytes:
    path.write_text(SCRIPT.format(outcome=outcome))
    return path.read_bytes()


@pytest.fixture
def built(tmp_path: Path) -> Path:
    write_script(tmp_path / "built", "exit 0")
    return tmp_path / "built"


@pytest.fixture
def host(worker: WorkerThread, built: Path) -> HostShim:
    return HostShim(worker, program=replace(SHIM, built=built))


async def test_the_program_is_there_once_and_under_every_name(host: HostShim, built: Path, tmp_path: Path) -> None:
    """The names are links to it, so that all of them are replaced with it; again nothing changes."""
    program, names = tmp_path / "lib/shim", [tmp_path / "bin/nvidia", tmp_path / "bin/nvidia.cdi"]
    assert await host.install(program, names)
    assert not await host.install(program, names)
    assert [name.readlink() for name in names] == [program, program]
    assert program.read_bytes() == write_script(built, "exit 0")
    assert program.stat().st_mode & 0o777 == 0o755
    names[0].unlink()
    assert await host.install(program, names)


async def test_a_newer_program_takes_the_place_of_one_that_runs(host: HostShim, built: Path, tmp_path: Path) -> None:
    """By rename: who runs the old one goes on with the old file."""
    program = tmp_path / "shim"
    await host.install(program)
    with program.open("rb") as held:
        write_script(built, "exit 0 # newer")
        program.chmod(0o700)
        assert await host.install(program)
        assert b"newer" not in held.read()
    assert b"newer" in program.read_bytes()


@pytest.mark.parametrize("other", ["file", "link"])
async def test_a_program_of_somebody_else_is_never_replaced(other: str, host: HostShim, tmp_path: Path) -> None:
    """It may be NVIDIA's own; what to do is said."""
    program, name = tmp_path / "shim", tmp_path / "nvidia-container-runtime"
    if other == "file":
        name.write_text("theirs")
    else:
        name.symlink_to("/etc/alternatives/x")
    with pytest.raises(ProgramNameTaken, match=r"another program is there: remove .*shim\.nvidia_name_dir"):
        await host.install(program, [name])
    assert name.is_symlink() == (other == "link")


async def test_a_name_that_cannot_be_made_says_why(host: HostShim, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileNotWritten, match="make the link"):
        await host.install(tmp_path / "shim", [tmp_path / "file/nvidia"])


async def test_a_program_is_installed_where_it_runs(worker: WorkerThread, built: Path, tmp_path: Path) -> None:
    """One that does not, or that was not built, is told with what to do."""
    write_script(built, "{ echo broken >&2; exit 1; }")
    with pytest.raises(ProgramUnfit, match="broken"):
        await HostShim(worker, program=replace(SHIM, built=built)).install(tmp_path / "b")
    with pytest.raises(ProgramMissing, match=r"make native.*runtime\.shim: false"):
        await HostShim(worker, program=replace(SHIM, built=tmp_path / "none")).install(tmp_path / "c")


def make_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/null")


async def test_the_table_is_written_when_it_says_something_else(host: HostShim, tmp_path: Path) -> None:
    """Or when somebody has touched it: cut, taken away, opened to others, or made a link."""
    directory = tmp_path / "shim"
    assert await host.write(directory, TABLE, "refuse")
    table, on_missing = directory / "table", directory / "on_missing"
    whole = table.read_bytes()
    identity = table.stat().st_ino
    assert not await host.write(directory, TABLE, "refuse")
    assert table.stat().st_ino == identity
    assert await host.write(directory, TABLE, "pass")
    assert on_missing.read_text() == "pass\n"
    assert await host.write(directory, ShimTable(), "pass")
    assert table.read_bytes() != whole
    for spoil in (lambda: table.write_bytes(b""), table.unlink, lambda: make_link(table), on_missing.unlink):
        spoil()
        assert await host.write(directory, TABLE, "pass")
        assert (table.read_bytes(), table.is_symlink(), on_missing.read_text()) == (whole, False, "pass\n")
    table.chmod(0o666)
    await host.write(directory, TABLE, "pass")
    assert table.stat().st_mode & 0o777 == 0o600


async def test_what_an_interrupted_write_left_goes(host: HostShim, tmp_path: Path) -> None:
    """An agent that is killed leaves at most a file with another name."""
    directory = tmp_path / "shim"
    directory.mkdir()
    (directory / ".table.0123abcd.tmp").write_text("half")
    await host.write(directory, TABLE, "refuse")
    assert sorted(path.name for path in directory.iterdir()) == ["on_missing", "table"]


async def test_the_table_is_taken_away_with_its_directory(host: HostShim, tmp_path: Path) -> None:
    """What somebody has put beside it stays."""
    directory = tmp_path / "shim"
    assert not await host.remove(directory)
    await host.write(directory, TABLE, "refuse")
    assert await host.remove(directory)
    assert not directory.exists()
    await host.write(directory, TABLE, "refuse")
    (directory / "theirs").touch()
    assert await host.remove(directory)
    assert [path.name for path in directory.iterdir()] == ["theirs"]
    (directory / "table").mkdir()
    with pytest.raises(FileNotWritten, match="remove what is in it"):
        await host.remove(directory)
    (tmp_path / "file").touch()
    with pytest.raises(FileNotWritten, match="make it fit"):
        await host.write(tmp_path / "file/shim", TABLE, "refuse")


async def test_marks_are_the_first_lines_of_what_is_there(worker: WorkerThread, built: Path, tmp_path: Path) -> None:
    """By the host's own names; a node without the driver's module has none of it."""
    proc, sys = tmp_path / "host/proc", tmp_path / "host/sys"
    (proc / "sys/kernel/random").mkdir(parents=True)
    (proc / "sys/kernel/random/boot_id").write_text("abc\nmore\n")
    shim = HostShim(worker, host=HostPaths(tmp_path / "host"), proc_root=proc, sys_root=sys)
    assert await shim.read_marks() == (("/proc/sys/kernel/random/boot_id", "abc"),)
    (sys / "module/nvidia").mkdir(parents=True)
    (sys / "module/nvidia/version").write_text("580.65.06\n")
    assert await shim.read_marks() == (
        ("/proc/sys/kernel/random/boot_id", "abc"),
        ("/sys/module/nvidia/version", "580.65.06"),
    )
    elsewhere = HostShim(worker, host=HostPaths(tmp_path / "other"), proc_root=proc, sys_root=sys)
    assert (await elsewhere.read_marks())[0][0] == str(proc / "sys/kernel/random/boot_id")


async def test_a_file_system_that_hangs_is_told(tmp_path: Path) -> None:
    with pytest.raises(HostStuck, match=str(tmp_path)):
        await HostShim(StuckThread("shim")).remove(tmp_path)


@pytest.mark.slow
@pytest.mark.may_block("nothing here runs on an event loop")
def test_the_table_is_found_beside_the_program_by_any_name(shim: Shim, program: Path, tmp_path: Path) -> None:
    """A link leads to the program and so to its table, which is where the agent writes it."""
    place = tmp_path / "lib"
    place.mkdir()
    shutil.copy(program, place / "nodeagent-oci-shim")
    shutil.move(shim.table, place / "shim")
    del shim.environment["NODEAGENT_SHIM_DIR"]
    name = tmp_path / "nvidia-container-runtime"
    name.symlink_to(place / "nodeagent-oci-shim")
    for each in (place / "nodeagent-oci-shim", name):
        done = shim.create(make_spec("NVIDIA_VISIBLE_DEVICES=0"), name=each)
        assert (done.status, done.gpus) == (7, ["nvidia0"])
    (place / "shim/table").unlink()
    assert str(place / "shim/table") in shim.create(make_spec("NVIDIA_VISIBLE_DEVICES=0"), name=name).said
