"""An agent in a container, to which the host's `/` is mounted elsewhere, acts on the host and speaks as the host does.

The host here is a made-up root, in which every usual path leads over an absolute link, as many hosts have them:
followed in the wrong root, they would lead into the agent's own.
"""

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.app.runtime_edge import see_processes
from nodeagent.components.runtime.component import restart_and_verify, write_plan
from nodeagent.components.runtime.probe import Probe, probe_runtime
from nodeagent.components.runtime.withdraw import withdraw
from nodeagent.config.live import LiveSettings
from nodeagent.config.load import load_settings
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.container_runtime.detect import RuntimeDetector
from nodeagent.edge.container_runtime.errors import ConfigRefused, RestartFailed
from nodeagent.edge.container_runtime.host_runtime import HostRuntime
from nodeagent.edge.host.errors import FileNotWritten, FileTooLarge, FileUnreadable
from nodeagent.edge.host.machine.host_paths import HostPaths
from nodeagent.model.runtime import RuntimeKind
from tests.fakes.cri import FakeCri

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("chroot") is None, reason="only root may change the root directory, by `chroot`"
)

MAIN = "/etc/containerd/config.toml"
CONFIG = 'version = 2\nimports = ["/etc/containerd/conf.d/*.toml"]\n'
SWITCHED_OFF = '[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = false\n'
ON, OFF = '{"enableCDI": true}', '{"enableCDI": false}'


class Host:
    """A host whose `/etc/containerd` and `/var/run` are links, with programs that say what they were called with."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for directory in (
            "run/containerd",
            "opt/etc",
            "opt/more",
            "etc",
            "var",
            "usr/bin",
            "proc/7",
            "proc/8",
            "bin",
            "lib64",
        ):
            (root / directory).mkdir(parents=True)
        (root / "etc/containerd").symlink_to("/opt/etc")
        (root / "opt/etc/conf.d").symlink_to("/opt/more")
        (root / "var/run").symlink_to("/run")
        (root / "opt/etc/config.toml").write_text(CONFIG)
        (root / "opt/more/10-site.toml").write_text("version = 2\n" + SWITCHED_OFF)
        self.install("containerd", 'test "$3" = config && grep -q imports "$2" && ! grep -q forbidden "$2"')
        self.install(
            "systemctl", "test $1 != show || exit; echo $SYSTEMD_IGNORE_CHROOT $@ >>/restarts; test ! -e /broken"
        )
        for number, name in ((7, "containerd"), (8, "kubelet")):
            (root / f"proc/{number}/comm").write_text(f"{name}\n")
        (root / "proc/7/exe").symlink_to("/usr/bin/containerd")
        (root / "proc/7/cmdline").write_bytes(b"containerd\0")
        (root / "proc/8/cmdline").write_bytes(b"kubelet\0--config\0/etc/kubelet.yaml\0")
        (root / "etc/kubelet.yaml").write_text("containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n")

    def install(self, name: str, script: str) -> None:
        path = self.root / "usr/bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def make_edge(self, state: Path) -> HostRuntime:
        proc = self.root / "proc"
        detector = RuntimeDetector(host_root=self.root, proc_root=proc, timeout_seconds=5.0)
        return HostRuntime(state, detector, WorkerThread("edge"), host_root=self.root, proc_root=proc)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """A root with a short name: the address of a socket is limited to 107 bytes."""
    monkeypatch.chdir(tmp_path)
    return Host(Path("h"))


@pytest.fixture
def edge(host: Host, tmp_path: Path) -> Iterator[HostRuntime]:
    edge = host.make_edge(tmp_path / "state")
    yield edge
    edge.close()


def hide_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernel does where the daemon is in another process namespace."""
    monkeypatch.setattr("nodeagent.edge.container_runtime.detect.read_peer_pid", lambda _path: None)


async def look(edge: HostRuntime, live: LiveSettings) -> Probe:
    found = await probe_runtime(edge, live.now.runtime)
    assert isinstance(found, Probe), found
    return found


@pytest.fixture
def live() -> LiveSettings:
    overrides = ["runtime.restart_timeout_seconds=5"]
    return LiveSettings(load_settings(environ={}, overrides=overrides).settings)


async def test_the_runtime_is_seen_as_the_host_names_it(
    host: Host, edge: HostRuntime, live: LiveSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Socket, process, kubelet and files, each by the host's path; a hidden listener is found by its name."""
    hide_peer(monkeypatch)
    async with FakeCri(version="2.1.4", config=OFF).serving(host.root / "run/containerd/containerd.sock"):
        evidence = await edge.read_evidence()
        found = await look(edge, live)
    (candidate,) = evidence.candidates
    assert (candidate.socket, candidate.pid, candidate.executable) == (
        "/run/containerd/containerd.sock",
        7,
        "/usr/bin/containerd",
    )
    assert evidence.kubelet_endpoint == "/run/containerd/containerd.sock"
    assert [file.path for file in found.tree.files] == [MAIN, "/etc/containerd/conf.d/10-site.toml"]
    assert [change.path for change in found.plan.changes] == ["/etc/containerd/conf.d/zz-nodeagent.toml"]


@pytest.mark.parametrize("hidden", ["absent", "unreadable", "nonsense"])
async def test_a_kubelet_that_tells_no_endpoint_is_passed_over(host: Host, edge: HostRuntime, hidden: str) -> None:
    """Whatever lies in the place of its configuration file."""
    config = host.root / "etc/kubelet.yaml"
    config.unlink()
    if hidden == "unreadable":
        config.mkdir()
    elif hidden == "nonsense":
        config.write_text("- containerRuntimeEndpoint")
    assert (await edge.read_evidence()).kubelet_endpoint == ""


async def test_two_processes_of_one_name_are_not_guessed_between(
    host: Host, edge: HostRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one behind the socket is then not known."""
    hide_peer(monkeypatch)
    (host.root / "proc/9").mkdir()
    (host.root / "proc/9/comm").write_text("containerd\n")
    async with FakeCri().serving(host.root / "run/containerd/containerd.sock"):
        (candidate,) = (await edge.read_evidence()).candidates
    assert (candidate.pid, candidate.executable) == (None, "")


async def test_docker_is_found_over_the_hosts_link(host: Host, edge: HostRuntime) -> None:
    """/var/run is a link to /run on the host, not to the agent's own."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(host.root / "run/docker.sock"))
        (candidate,) = (await edge.read_evidence()).candidates
    assert (candidate.kind, candidate.socket) == (RuntimeKind.DOCKER, "/var/run/docker.sock")


@needs_root
async def test_a_change_is_judged_written_and_put_into_force_on_the_host(
    host: Host, edge: HostRuntime, live: LiveSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the host's own programs, in its own root; nothing of the agent's own root is touched; and back again."""
    hide_peer(monkeypatch)
    make_shell(host.root)
    fake = FakeCri(version="2.1.4", config=OFF)
    async with fake.serving(host.root / "run/containerd/containerd.sock"):
        planned = await look(edge, live)
        proof = await write_plan(edge, planned)
        drop_in = host.root / "opt/more/zz-nodeagent.toml"
        assert "enable_cdi = true" in drop_in.read_text()
        # The program of this host is a script, which judges files and never starts.
        assert "does not come up on the side even without configuration" in proof.unproved
        assert not list(host.root.glob("run/.nodeagent-check-*"))
        after = await look(edge, live)
        assert after.restart_needed == "systemctl restart containerd.service"
        fake.config = ON
        await restart_and_verify(edge, live, after, planned.plan.changes)
        assert (host.root / "restarts").read_text() == "1 restart containerd.service\n"
    restored = await edge.restore(withdraw)
    assert restored.given_back == ("/etc/containerd/conf.d/zz-nodeagent.toml",)
    assert not drop_in.exists()
    assert (host.root / "opt/etc/config.toml").read_text() == CONFIG


@needs_root
async def test_a_restart_that_fails_on_the_host_is_taken_back(
    host: Host, edge: HostRuntime, live: LiveSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command in the message is the one that a person runs on the host."""
    hide_peer(monkeypatch)
    make_shell(host.root)
    (host.root / "broken").touch()
    async with FakeCri(version="2.1.4", config=OFF).serving(host.root / "run/containerd/containerd.sock"):
        planned = await look(edge, live)
        await write_plan(edge, planned)
        with pytest.raises(RestartFailed, match=r"^`systemctl restart containerd\.service` failed"):
            await restart_and_verify(edge, live, await look(edge, live), planned.plan.changes)
    assert not (host.root / "opt/more/zz-nodeagent.toml").exists()


@needs_root
async def test_a_change_that_the_hosts_program_refuses_is_not_written(host: Host, edge: HostRuntime) -> None:
    """Where the host's /run may not be written, the copy lies beside the file that is to be changed."""
    make_shell(host.root)
    (host.root / "run").rename(host.root / "gone")
    (host.root / "run").write_text("in the way")
    (host.root / "opt/etc/config.toml").write_text(CONFIG + "forbidden = 1\n")
    tree = await edge.read_config(RuntimeKind.CONTAINERD, MAIN)
    with pytest.raises(ConfigRefused, match=r"^/usr/bin/containerd refuses"):
        await edge.check(RuntimeKind.CONTAINERD, "/usr/bin/containerd", tree)
    assert [path.name for path in (host.root / "opt/etc").iterdir() if path.name.startswith(".")] == []
    (host.root / "etc/containerd").unlink()
    (host.root / "etc/containerd").write_text("in the way")
    with pytest.raises(FileNotWritten, match=r"cannot write /etc/containerd/config\.toml: make a copy"):
        await edge.check(RuntimeKind.CONTAINERD, "/usr/bin/containerd", tree)


def make_shell(root: Path) -> None:
    """The programs that the host's own need, in its own root: this machine's, with the libraries they are linked to."""
    for place in ("bin/sh", "usr/bin/env", "bin/grep"):
        program = shutil.which(Path(place).name)
        assert program is not None
        shutil.copy(program, root / place)
        linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
        for library in re.findall(r"(/\S+) \(0x", linked):
            (root / library.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, root / library.lstrip("/"))


def test_paths_lead_there_and_back(host: Host) -> None:
    """Links are the host's, also in patterns and below directories; a circle is told by whoever opens it."""
    paths = HostPaths(host.root)
    assert paths.here(MAIN) == host.root / "opt/etc/config.toml"
    assert paths.here("/etc/containerd/new/file") == host.root / "opt/etc/new/file"
    assert list(paths.list_matching("/etc/containerd/conf.d/*.toml")) == ["/etc/containerd/conf.d/10-site.toml"]
    assert list(paths.list_matching(MAIN)) == [MAIN]
    assert list(paths.list_matching("/etc/none")) == []
    (host.root / "opt/etc/d/sub").mkdir(parents=True)
    for name in ("b", "a", "sub/c"):
        (host.root / "opt/etc/d" / name).touch()
    assert list(paths.walk("/etc/containerd/d")) == [f"/etc/containerd/d/{name}" for name in ("a", "b", "sub/c")]
    (host.root / "etc/round").symlink_to("/etc/round")
    with pytest.raises(FileUnreadable, match=r"cannot read /etc/round"):
        paths.read("/etc/round")
    assert paths.read("/etc/none") is None


def test_a_link_is_seen_and_the_directories_above_it_are_followed(host: Host) -> None:
    """As the host names them; one that leads nowhere is a link, too."""
    paths = HostPaths(host.root)
    paths.here("/etc/containerd/conf.d/own.toml").symlink_to("/gone")
    assert paths.is_link("/etc/containerd/conf.d/own.toml")
    assert not paths.is_link("/etc/containerd/conf.d/10-site.toml")
    assert not paths.is_link("/etc/containerd/none/own.toml")
    assert paths.list_missing_directories("/etc/containerd/a/b/c.toml") == ("/etc/containerd/a/b", "/etc/containerd/a")


def test_a_directory_that_cannot_be_taken_away_is_told() -> None:
    """One that is in use, gone, or no directory any more is no error; one that the system keeps is."""
    paths = HostPaths()
    paths.remove_empty(("/", "/none", "/dev/null"))
    with pytest.raises(FileNotWritten, match=r"^cannot write /proc/self/task: remove it"):
        paths.remove_empty(("/proc/self/task",))


def test_what_cannot_be_done_is_told_with_the_hosts_path(host: Host) -> None:
    """The reader of the message looks for the file on the host."""
    paths = HostPaths(host.root)
    (host.root / "etc/file").write_text("four")
    with pytest.raises(FileTooLarge, match=r"cannot read /etc/file: it is larger than 3 bytes"):
        paths.read("/etc/file", limit_bytes=3)
    with pytest.raises(FileNotWritten, match=r"^cannot write /etc/file/below: create its directory"):
        paths.write("/etc/file/below", b"")
    with pytest.raises(FileNotWritten, match=r"^cannot write /usr/bin: rename the temporary file"):
        paths.write("/usr/bin", b"")
    with pytest.raises(FileNotWritten, match=r"^cannot write /usr/bin: remove it"):
        paths.write("/usr/bin", None)


@pytest.mark.parametrize(
    ("overrides", "proc"),
    [
        ((), "/proc"),
        (("node.host_root=/host",), "/host/proc"),
        (("node.host_root=/host", "node.proc_dir=/hostproc"), "/hostproc"),
    ],
)
def test_the_hosts_processes_are_looked_for_in_its_root(overrides: tuple[str, ...], proc: str) -> None:
    """Unless the settings name another place."""
    assert str(see_processes(load_settings(environ={}, overrides=overrides).settings)) == proc
