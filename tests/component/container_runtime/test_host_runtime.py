"""The whole edge over a made-up containerd: changes are judged, written, and followed by a restart."""

import tomllib
from pathlib import Path, PurePosixPath
from typing import Any

import anyio
import pytest

from nodeagent.components.runtime.withdraw import withdraw
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.container_runtime.config_files import read_config_tree
from nodeagent.edge.container_runtime.errors import ConfigRefused, ProgramMissing
from nodeagent.edge.container_runtime.host_runtime import HostRuntime
from nodeagent.edge.container_runtime.tools import find_host_root
from nodeagent.model.runtime import ConfigTree, FileChange, RuntimeKind
from tests.component.container_runtime.host import make_detector


class Edge:
    """The whole edge over a made-up containerd program."""

    def __init__(self, host: Path, script: str) -> None:
        self.program = (host / "usr/bin/containerd").absolute()
        self.program.write_text(f"#!/bin/sh\n{script}\n")
        self.program.chmod(0o755)
        self.main = (host / "config.toml").absolute()
        self.edge = HostRuntime((host / "state").absolute(), make_detector(host), WorkerThread("edge"))


CHECKS = 'test "$4" = dump && ! grep -q forbidden "$2" && grep -q import-0.toml "$2"'


async def test_a_change_is_judged_by_the_runtimes_own_program(host: Path) -> None:
    """It sees the files as they will be, with every import by name; what it refuses is said in its words."""
    edge = Edge(host, CHECKS + " || { echo 'toml: no' >&2; exit 1; }")
    edge.main.write_text('imports = [\n "more.toml"]\nversion = 2\n')
    (edge.main.parent / "more.toml").write_text("")
    tree = await edge.edge.read_config(RuntimeKind.CONTAINERD, str(edge.main))
    assert await edge.edge.check(RuntimeKind.CONTAINERD, str(edge.program), tree)
    edge.main.write_text('imports = ["more.toml"]\nforbidden = 1\n')
    tree = await edge.edge.read_config(RuntimeKind.CONTAINERD, str(edge.main))
    with pytest.raises(Exception, match="refuses the new configuration: toml: no"):
        await edge.edge.check(RuntimeKind.CONTAINERD, str(edge.program), tree)
    assert not await edge.edge.check(RuntimeKind.CRIO, str(edge.program), tree)
    assert not await edge.edge.check(RuntimeKind.CONTAINERD, "/usr/lib/systemd/systemd", tree)
    with pytest.raises(ProgramMissing, match="/nowhere/containerd, which runs, is no longer there"):
        await edge.edge.check(RuntimeKind.CONTAINERD, "/nowhere/containerd", tree)
    edge.edge.close()


@pytest.mark.parametrize(
    "imports",
    [
        'imports = [\n "more.toml", # see [docs]\n]',
        '  imports = ["more.toml"]',
        '"imports" = ["more.toml"]',
        'imports = ["[m]*.toml"]',
        'imports = ["more.toml"]\r',
    ],
    ids=["a remark", "indented", "in quotes", "a set of letters", "other line ends"],
)
async def test_imports_are_replaced_however_they_are_written(host: Path, imports: str) -> None:
    """The program would refuse a copy in which half of them, or the key twice, is left; a table's own key stays."""
    edge = Edge(host, 'cp "$2" "${0%/usr/bin/*}/judged"')
    edge.main.write_bytes(f'{imports}\nversion = 2\n[plugins.x]\nimports = ["own"]\n'.encode())
    (edge.main.parent / "more.toml").write_text("")
    tree = await edge.edge.read_config(RuntimeKind.CONTAINERD, str(edge.main))
    assert await edge.edge.check(RuntimeKind.CONTAINERD, str(edge.program), tree)
    judged = tomllib.loads((host / "judged").read_text())
    assert [PurePosixPath(path).name for path in judged.pop("imports")] == ["import-0.toml"]
    assert judged == {"version": 2, "plugins": {"x": {"imports": ["own"]}}}
    edge.edge.close()


@pytest.mark.parametrize(
    ("help_text", "content", "judged"),
    [("--validate", "{}", True), ("--config-file", "{}", False), ("--validate", '{"forbidden": 1}', None)],
    ids=["accepted", "too old to judge", "refused"],
)
async def test_docker_judges_from_the_release_that_can(
    host: Path, help_text: str, content: str, judged: bool | None
) -> None:
    """Docker before 23 has no such flag, and would take the question for a mistake."""
    edge = Edge(host, "")
    daemon = edge.program.with_name("dockerd")
    daemon.write_text(
        f"#!/bin/sh\ntest $1 != --help || {{ echo {help_text}; exit; }}\ntest $1 = --validate && ! grep forbidden $3\n"
    )
    daemon.chmod(0o755)
    edge.main.write_text(content)
    tree = await edge.edge.read_config(RuntimeKind.DOCKER, str(edge.main))
    if judged is None:
        with pytest.raises(ConfigRefused, match="forbidden"):
            await edge.edge.check(RuntimeKind.DOCKER, str(daemon), tree)
    else:
        assert await edge.edge.check(RuntimeKind.DOCKER, str(daemon), tree) is judged
    edge.edge.close()


async def test_a_program_that_cannot_be_asked_judges_nothing(host: Path) -> None:
    edge = Edge(host, "")
    daemon = edge.program.with_name("dockerd")
    daemon.write_text("no program")
    edge.main.write_text("{}")
    tree = await edge.edge.read_config(RuntimeKind.DOCKER, str(edge.main))
    assert not await edge.edge.check(RuntimeKind.DOCKER, str(daemon), tree)
    edge.edge.close()


async def test_a_restart_that_fails_says_why(host: Path) -> None:
    """Its words, its exit status, or that the program is missing."""
    edge = Edge(host, 'test "$1" = well || { test "$1" = mute || echo broken; exit 3; }')
    await edge.edge.restart([str(edge.program), "well"])
    for argument, said in (("ill", "broken"), ("mute", "exit status 3")):
        with pytest.raises(Exception, match=said):
            await edge.edge.restart([str(edge.program), argument])
    with pytest.raises(Exception, match=r"/nowhere: .*[Nn]o such file"):
        await edge.edge.restart(["/nowhere"])
    edge.edge.close()


def test_the_hosts_service_manager_is_reached_from_a_container(host: Path) -> None:
    """Through the root of the host's first process; an agent that is not in a container, or sees none, uses its own."""
    process = host / "proc/1"
    process.mkdir(parents=True)
    assert find_host_root(host / "proc") == Path("/")
    (process / "root").symlink_to("/")
    assert find_host_root(host / "proc") == Path("/")
    (process / "root").unlink()
    (process / "root").symlink_to(host.absolute())
    assert find_host_root(host / "proc") == process / "root"


@pytest.mark.parametrize("reading", [1, 2, 3])
async def test_a_change_during_a_reading_ends_the_wait(
    host: Path, monkeypatch: pytest.MonkeyPatch, reading: int
) -> None:
    """Whether its files were known before (the third is of files that are) or are read for the first time."""
    edge, left = Edge(host, ""), reading
    edge.main.write_text("version = 2\n")

    def read_slowly(*words: Any, **more: Any) -> ConfigTree:
        nonlocal left
        tree = read_config_tree(*words, **more)
        left -= 1
        if left == 0:
            edge.main.write_text("version = 2\n# by somebody else\n")
        return tree

    monkeypatch.setattr(f"{HostRuntime.__module__}.read_config_tree", read_slowly)
    with anyio.fail_after(20):
        tree = await edge.edge.read_config(RuntimeKind.CONTAINERD, str(edge.main))
        while left > 0:
            tree = await edge.edge.read_config(RuntimeKind.CONTAINERD, str(edge.main))
        if b"somebody" not in (tree.files[0].content or b""):
            await edge.edge.wait_change()
    assert b"somebody" in edge.main.read_bytes()
    edge.edge.close()


async def test_files_are_written_watched_and_given_back(host: Path) -> None:
    """A change by anybody ends the wait, and unconfigure leaves no trace."""
    edge = Edge(host, "")
    edge.main.write_text("version = 2\n")
    await edge.edge.read_config(RuntimeKind.CONTAINERD, str(edge.main))
    change = FileChange(path=str(edge.main), before=b"version = 2\n", after=b"version = 2\n# ours\n")
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(edge.edge.wait_change)
            await edge.edge.apply([change])
    assert b"ours" in edge.main.read_bytes()
    await edge.edge.undo([change])
    assert edge.main.read_bytes() == b"version = 2\n"
    await edge.edge.apply([change])
    assert (await edge.edge.restore(withdraw)).given_back == (str(edge.main),)
    assert edge.main.read_bytes() == b"version = 2\n"
    edge.edge.close()
