"""The directories of specifications on a real file system."""

from pathlib import Path
from typing import TypeVar

import anyio
import pytest

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.driver.driver_files import DriverFileFinder
from nodeagent.edge.host.errors import FileNotWritten, HostStuck
from nodeagent.edge.host.files.cdi_files import HostDriverFiles, SpecFiles
from nodeagent.edge.host.machine.host_paths import HostPaths
from tests.support.files.driver_tree import VERSION, DriverTree
from tests.support.threads import StuckThread

T = TypeVar("T")


def make_files(tmp_path: Path) -> SpecFiles:
    return SpecFiles(tmp_path / "run", others=(tmp_path / "etc", tmp_path / "run"), poll_seconds=0.01)


async def test_what_is_written_is_read(tmp_path: Path) -> None:
    """The directory is made, the file readable by everybody, and no temporary file is left."""
    files = make_files(tmp_path)
    await files.write_spec("a.json", b"{}")
    (read,) = await files.read_specs()
    assert (read.path, read.content) == (files.locate("a.json"), b"{}")
    status = await anyio.Path(read.path).stat()
    assert (status.st_mode & 0o777, status.st_mtime) == (0o644, read.written_seconds)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["a.json"]
    await files.remove_spec("a.json")
    await files.remove_spec("a.json")
    assert await files.read_specs() == ()
    files.close()


def test_only_files_that_runtimes_read_are_read(tmp_path: Path) -> None:
    """The lower directory comes first; other extensions do not count, an unreadable file is told."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run/ours.json").write_text("{}")
    (tmp_path / "etc/theirs.yaml").write_text("{}")
    (tmp_path / "etc/other.yml").write_text("{}")
    (tmp_path / "etc/directory.json").mkdir()
    found = make_files(tmp_path).read_nowait()
    assert [Path(each.path).name for each in found] == ["directory.json", "theirs.yaml", "ours.json"]
    assert "is a directory" in found[0].problem


def test_a_directory_with_two_names_is_read_once(tmp_path: Path) -> None:
    """/var/run is a link to /run on most hosts; a file must not conflict with itself."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run/ours.json").write_text("{}")
    (tmp_path / "var").symlink_to(tmp_path / "run")
    files = SpecFiles(tmp_path / "run", others=(tmp_path / "var",))
    assert len(files.read_nowait()) == 1


async def test_a_change_by_anybody_is_noticed(tmp_path: Path) -> None:
    """A file that is deleted, changed or added ends the wait."""
    files = make_files(tmp_path)
    await files.write_spec("a.json", b"{}")
    for change in (
        lambda: (tmp_path / "run/a.json").write_text("[]"),
        lambda: (tmp_path / "run/b.yaml").write_text(""),
        (tmp_path / "run/a.json").unlink,
    ):
        await files.read_specs()
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(files.wait_change)
                await anyio.sleep(0.05)
                change()
    files.close()


async def test_what_comes_and_goes_with_pods_is_listed_and_otherwise_passed_over(tmp_path: Path) -> None:
    """It is neither read nor waited for, by whichever name it goes; what is the node's is."""
    files = SpecFiles(tmp_path, others=(), passing=("part-", "claim_"), poll_seconds=0.01)
    await files.write_spec("a.json", b"{}")
    await files.read_specs()
    with anyio.move_on_after(0.1) as waiting:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(files.wait_change)
            for name in ("part-1.json", "claim_1.json"):
                await files.write_spec(name, b"{}", durable=False)
    assert waiting.cancelled_caught
    (tmp_path / "claim_2.txt").write_text("no specification")
    assert sorted(await files.list_passing()) == ["claim_1.json", "part-1.json"]
    assert [Path(each.path).name for each in await files.read_specs()] == ["a.json"]
    files.close()


def test_leftovers_of_killed_writers_go(tmp_path: Path) -> None:
    """Of the node's own file at each writing; of containers' files those of an agent before, at the first."""
    files = SpecFiles(tmp_path, others=(), passing=("part-",))

    def leave(*names: str) -> None:
        for name in names:
            (tmp_path / f".{name}.00c0ffee.tmp").write_bytes(b"half")

    leave("own.json", "part-1.json", "other.json")
    for name, left in (
        ("part-2.json", [".other.json.00c0ffee.tmp", ".own.json.00c0ffee.tmp", "part-2.json"]),
        ("own.json", [".other.json.00c0ffee.tmp", "own.json", "part-2.json"]),
    ):
        files.write_nowait(name, b"{}")
        assert sorted(each.name for each in tmp_path.iterdir()) == left
    leave("part-3.json")
    files.write_nowait("part-4.json", b"{}")
    assert (tmp_path / ".part-3.json.00c0ffee.tmp").exists(), "a container waits for a writing, not for a look around"
    files.close()


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    """A file in place of the directory is an error that names both."""
    (tmp_path / "run").write_text("")
    with pytest.raises(FileNotWritten, match="create its directory"):
        make_files(tmp_path).write_nowait("a.json", b"")
    with pytest.raises(FileNotWritten, match="remove it"):
        make_files(tmp_path).remove_nowait("a.json")


async def test_a_hanging_file_system_is_an_error_in_time(tmp_path: Path) -> None:
    """Whoever asks is told instead of waiting."""
    files = SpecFiles(tmp_path, worker=StuckThread("cdi"))
    with pytest.raises(HostStuck):
        await files.read_specs()
    with pytest.raises(HostStuck):
        await files.list_passing()
    driver = HostDriverFiles(tmp_path, None, DriverFileFinder(), StuckThread("driver"))
    with pytest.raises(HostStuck):
        await driver.read_driver_files()


async def test_the_driver_is_found_off_the_loop(tmp_path: Path) -> None:
    """The port reads what the finder finds, with or without a loop."""
    tree = DriverTree(tmp_path / "driver")
    tree.install()
    worker = WorkerThread("driver files")
    files = HostDriverFiles(tree.root, None, DriverFileFinder(sys_root=tmp_path, proc_root=tmp_path), worker)
    found = await files.read_driver_files()
    assert found.version == VERSION
    assert found == await anyio.to_thread.run_sync(files.read_nowait)
    assert [node.path for node in (await files.read_driver_files(["/dev/null"])).extra_nodes] == ["/dev/null"]
    worker.close()


def test_a_hosts_directories_are_read_in_its_root(tmp_path: Path) -> None:
    """Told by the host's names, over the host's links; the directory that is mounted at two places is read once."""
    host, own = tmp_path / "host", tmp_path / "own"
    (host / "opt/cdi").mkdir(parents=True)
    (host / "etc").mkdir()
    (host / "etc/cdi").symlink_to("/opt/cdi")
    own.mkdir()
    (host / "run").symlink_to(own)
    for place in (host / "opt/cdi/a.json", own / "b.json"):
        place.write_text("{}")
    (host / "opt/cdi/broken.json").mkdir()
    files = SpecFiles(own, others=(Path("/etc/cdi"), Path("/none")), host=HostPaths(host))
    found = files.read_nowait()
    assert [spec.path for spec in found] == ["/etc/cdi/a.json", "/etc/cdi/broken.json", str(own / "b.json")]
    assert found[1].problem.startswith("cannot read /etc/cdi/broken.json: is a directory")
    same = SpecFiles(own, others=(Path("/same"),), host=HostPaths(tmp_path))
    (tmp_path / "same").symlink_to("/own")
    assert [spec.path for spec in same.read_nowait()] == [str(own / "b.json")]
    files.close()
    same.close()
