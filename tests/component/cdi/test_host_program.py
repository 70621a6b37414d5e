"""Programs of the agent's that run on the host: put there once, tried once."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.errors import (
    FileNotWritten,
    FileUnreadable,
    OwnCommandUnknown,
    ProgramMissing,
    ProgramNameTaken,
    ProgramUnfit,
)
from nodeagent.edge.host.files import host_program
from nodeagent.edge.host.files.host_program import HOOK, HostProgram
from nodeagent.edge.host.machine.host_paths import HostPaths
from tests.component.cdi.bundle import needs_compiler, needs_root

pytestmark = [pytest.mark.slow, needs_compiler]


async def test_the_program_is_put_on_the_host_once(tmp_path: Path) -> None:
    """It is replaced when it differs or is not executable; a package without it says how to build it."""
    built, place = tmp_path / "built", tmp_path / "host/lib/hook"
    built.write_bytes(b"program")
    worker = WorkerThread("hook")
    installer = HostProgram(worker, replace(HOOK, built=built))
    assert await installer.install(place)
    assert not await installer.install(place)
    assert place.stat().st_mode & 0o777 == 0o755
    place.chmod(0o644)
    assert await installer.install(place)
    assert place.stat().st_mode & 0o777 == 0o755
    with pytest.raises(ProgramMissing, match="make native"):
        await HostProgram(worker, replace(HOOK, built=tmp_path / "none")).install(place)
    (tmp_path / "file").write_text("")
    with pytest.raises(FileNotWritten, match="create its directory"):
        await installer.install(tmp_path / "file/hook")
    with pytest.raises(FileUnreadable, match="is a directory"):
        await installer.install(tmp_path)
    # From a container, a path of the host's is one below the host's root.
    await HostProgram(worker, replace(HOOK, built=built), host=HostPaths(tmp_path / "root")).install(
        Path("/usr/local/hook")
    )
    assert (tmp_path / "root/usr/local/hook").read_bytes() == b"program"
    worker.close()


SCRIPT = """#!/bin/sh
echo run >> {log}
[ "$1" = self-check ] && {outcome}
"""


async def test_a_program_is_tried_once_as_long_as_it_is_the_same(worker: WorkerThread, tmp_path: Path) -> None:
    """What ran is taken for good; another file in its place is tried again, and so is what failed."""
    path, log = tmp_path / "hook", tmp_path / "log"
    installer = HostProgram(worker, environment={})
    path.write_text(SCRIPT.format(log=log, outcome="exit 0"))
    path.chmod(0o755)
    for _ in range(3):
        await installer.check(path)
    assert log.read_text() == "run\n"
    path.unlink()
    path.write_text(SCRIPT.format(log=log, outcome="{ echo no ldconfig >&2; exit 1; }"))
    path.chmod(0o755)
    for _ in range(2):
        with pytest.raises(ProgramUnfit, match=f"{path} cannot be shown to run on the host: no ldconfig"):
            await installer.check(path)
    assert log.read_text() == "run\nrun\nrun\n"


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (b"\x7fELF" + bytes(60), 0o755, "exec format error"),
        (b"#!/bin/sh\n", 0o644, "permission denied"),
        (b"#!/bin/sh\nexit 7\n", 0o755, "it ended with 7"),
        (None, 0, "it is not there"),
    ],
)
@pytest.mark.long
async def test_what_does_not_run_here_says_why(
    worker: WorkerThread, tmp_path: Path, content: bytes | None, mode: int, said: str
) -> None:
    """Another processor's program, one on a file system without execution, one that fails, none."""
    path = tmp_path / "hook"
    if content is not None:
        path.write_bytes(content)
        path.chmod(mode)
    with pytest.raises(ProgramUnfit, match=said):
        await HostProgram(worker, environment={}).check(path)


async def test_a_program_that_does_not_end_is_given_up(
    worker: WorkerThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hung file system under it must not hang the agent."""
    monkeypatch.setattr(host_program, "_CHECK_SECONDS", 0.05)
    path = tmp_path / "hook"
    path.write_text("#!/bin/sh\nexec sleep 60\n")
    path.chmod(0o755)
    with pytest.raises(ProgramUnfit, match="did not end"):
        await HostProgram(worker, environment={}).check(path)


async def test_a_pod_that_does_not_see_the_host_cannot_know(worker: WorkerThread, program: Path) -> None:
    """What runs in its own image says nothing of the host."""
    with pytest.raises(ProgramUnfit, match="does not see the host"):
        await HostProgram(worker, environment={"KUBERNETES_SERVICE_HOST": "10.0.0.1"}).check(program)


# On a kernel without `openat2` the hook reads /proc, which this root lacks and no host does.
@needs_root
@pytest.mark.parametrize("program", ["this kernel"], indirect=True)
async def test_it_is_tried_in_the_hosts_root(worker: WorkerThread, program: Path, tmp_path: Path) -> None:
    """By the path that the container runtime will use: without the host's ldconfig it is of no use, with it it is."""
    root, path = tmp_path / "root", Path("/var/lib/nodeagent/hook")
    installer = HostProgram(
        worker, replace(HOOK, built=program), host=HostPaths(root), environment={"KUBERNETES_SERVICE_HOST": "x"}
    )
    await installer.install(path)
    with pytest.raises(ProgramUnfit, match="the host has no ldconfig"):
        await installer.check(path)
    (root / "sbin").mkdir()
    (root / "sbin/ldconfig").touch()
    await installer.check(path)
    installer.check_nowait(path)


async def test_a_directory_of_the_same_name_is_written_by_its_name(worker: WorkerThread, tmp_path: Path) -> None:
    """A pod has the state directory of the host where the host has it, and may write there, not elsewhere."""
    built, host, shared = tmp_path / "built", tmp_path / "host", tmp_path / "state"
    built.write_bytes(b"program")
    shared.mkdir()
    installer = HostProgram(worker, replace(HOOK, built=built), host=HostPaths(host), shared=shared)
    assert await installer.install(shared / "hook")
    assert not await installer.install(shared / "hook")
    assert (shared / "hook").read_bytes() == b"program"
    assert not host.exists()


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The command by which the agent was started."""
    path = tmp_path / "usr/bin/nodeagent"
    path.parent.mkdir(parents=True)
    path.touch(0o755)
    monkeypatch.setattr("sys.argv", [str(path), "run"])
    return path


async def test_hook_and_command_have_nvidias_names(worker: WorkerThread, command: Path, tmp_path: Path) -> None:
    """Once, and without a hook the command alone; a program of somebody else keeps its name."""
    names, hook, installer = tmp_path / "names", tmp_path / "hook", HostProgram(worker, environment={})
    assert await installer.name(names, None)
    assert [path.name for path in names.iterdir()] == ["nvidia-container-cli"]
    assert await installer.name(names, hook)
    assert not await installer.name(names, hook)
    assert {path.name: path.readlink() for path in names.iterdir()} == {
        "nvidia-container-cli": command,
        "nvidia-cdi-hook": hook,
    }
    for name in ("nvidia-cdi-hook", "nvidia-container-cli"):
        (names / name).unlink()
        (names / name).write_text("theirs")
        with pytest.raises(ProgramNameTaken, match=r"another program is there: remove .*`cdi\.nvidia_name_dir`"):
            await installer.name(names, hook)
        assert (names / name).read_text() == "theirs"
        (names / name).unlink()


@pytest.mark.usefixtures("command")
async def test_the_command_of_a_pod_has_no_name_on_the_host(worker: WorkerThread, tmp_path: Path) -> None:
    root = tmp_path / "host"
    for installer in (
        HostProgram(worker, host=HostPaths(root), environment={}),
        HostProgram(worker, host=HostPaths(root), environment={"KUBERNETES_SERVICE_HOST": "10.0.0.1"}),
    ):
        await installer.name(Path("/usr/local/bin"), Path("/opt/hook"))
        assert [path.name for path in (root / "usr/local/bin").iterdir()] == ["nvidia-cdi-hook"]


async def test_an_agent_without_its_command_says_why_there_is_no_name(
    worker: WorkerThread, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.argv", [str(tmp_path / "__main__.py")])
    with pytest.raises(OwnCommandUnknown, match=r"was started as .*__main__\.py: start it by its command"):
        await HostProgram(worker, environment={}).name(tmp_path / "names", None)
