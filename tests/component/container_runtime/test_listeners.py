"""On a host with two daemons, an agent from whom the kernel hides who listens acts on the one behind its socket."""

import os
import socket
import subprocess
from pathlib import Path

import pytest

from nodeagent.components.runtime.probe import Probe, probe_runtime
from nodeagent.config.load import load_settings
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.container_runtime.detect import RuntimeDetector
from nodeagent.edge.container_runtime.host_runtime import HostRuntime
from nodeagent.edge.container_runtime.listeners import find_listener
from nodeagent.edge.host.machine.host_paths import HostPaths
from nodeagent.model.runtime import RuntimeKind
from nodeagent.model.runtimes import RUNTIMES
from tests.component.container_runtime.test_host_root import OFF, Host, hide_peer
from tests.fakes.cri import FakeCri

SECOND = "/srv/second/containerd.sock"
RESTART = "systemctl restart second.service"
TABLE = """Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000003 00000000 00000000 0001 03 77 {socket}
0000000000000000: 00000002 00000000 00010000 0001 01 {inode} {socket}
0000000000000000: 00000002 00000000 00010000 0001 01 80 @/abstract/containerd.sock
0000000000000000: 00000002 00000000 00010000 0001 01 81
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """With a short name: the address of a socket is limited to 107 bytes."""
    monkeypatch.chdir(tmp_path)
    return Host(Path("h"))


def add_second(machine: Host, *arguments: str, number: int = 9) -> Path:
    """Another containerd beside the host's own, by its directory in /proc."""
    process = machine.root / f"proc/{number}"
    process.mkdir()
    (process / "comm").write_text("containerd\n")
    (process / "cmdline").write_bytes("\0".join(("containerd", *arguments, "")).encode())
    (process / "cgroup").write_text("0::/system.slice/second.service\n")
    (machine.root / "proc/7/cgroup").write_text("0::/system.slice/containerd.service\n")
    (machine.root / "srv/second").mkdir(parents=True, exist_ok=True)
    return process


async def find_second(machine: Host, state: Path) -> tuple[int | None, str, str]:
    """Which process was found behind its socket, and which configuration file and restart follow from it."""
    proc, socket = machine.root / "proc", Path(SECOND)
    detector = RuntimeDetector(host_root=machine.root, proc_root=proc, socket=socket, timeout_seconds=5.0)
    edge = HostRuntime(state, detector, WorkerThread("edge"), host_root=machine.root, proc_root=proc)
    settings = load_settings(environ={}, overrides=[f"runtime.socket={socket}"]).settings
    try:
        async with FakeCri(version="2.1.4", config=OFF).serving(machine.root / SECOND.lstrip("/")):
            evidence = await edge.read_evidence()
            found = await probe_runtime(edge, settings.runtime)
    finally:
        edge.close()
    assert isinstance(found, Probe)
    return evidence.candidates[0].pid, found.runtime.config_file, " ".join(found.runtime.restart_command)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--config", "/srv/second/config.toml"),
        ("--config=/srv/second/config.toml", "--address", SECOND),
        ("--config=/srv/second/config.toml", f"--address={SECOND}"),
    ],
)
async def test_of_two_daemons_the_one_behind_the_socket_is_found_by_what_it_was_told(
    machine: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    """On its command line, or in its configuration; so its file is read, its unit restarted, and no other."""
    hide_peer(monkeypatch)
    add_second(machine, *arguments)
    # As people write it: over a link of the host's.
    (machine.root / "link").symlink_to("/srv/second")
    (machine.root / "srv/second/config.toml").write_text('version = 2\n[grpc]\naddress = "/link/containerd.sock"\n')
    assert await find_second(machine, tmp_path / "state") == (9, "/srv/second/config.toml", RESTART)


async def test_of_two_daemons_the_one_that_has_the_socket_open_is_it(
    machine: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the others were told; in their network namespace the socket is listed for all of them."""
    hide_peer(monkeypatch)
    first, second = machine.root / "proc/7", add_second(machine, "--config", "/srv/second/config.toml")
    (first / "cmdline").write_bytes(f"containerd\0--address\0{SECOND}\0".encode())
    for process, inode in ((first, 78), (second, 79)):
        (process / "net").mkdir()
        (process / "net/unix").write_text(TABLE.format(socket=SECOND, inode=79))
        (process / "fd").mkdir()
        (process / "fd/3").symlink_to("/dev/null")
        (process / "fd/4").symlink_to(f"socket:[{inode}]")
        (process / "fd/5").mkdir()
    assert await find_second(machine, tmp_path / "state") == (9, "/srv/second/config.toml", RESTART)


async def test_of_daemons_that_were_told_the_same_none_is_it(
    machine: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of the usual one is not taken for its own; what cannot be read tells nothing."""
    hide_peer(monkeypatch)
    for number in (9, 10):
        add_second(machine, "--config", "/srv/second", "--address", SECOND, number=number)
    assert await find_second(machine, tmp_path / "state") == (None, "", "")


def test_a_real_listener_is_found_in_the_kernels_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By this kernel's own words for this process and for a child that has the socket not."""
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listening, subprocess.Popen(["sleep", "100"]) as other:
        try:
            listening.bind(str(place))
            listening.listen()
            processes = [Path(f"/proc/{pid}") for pid in (other.pid, os.getpid())]
            found = find_listener(processes, str(place), RUNTIMES[RuntimeKind.CONTAINERD], HostPaths())
            assert found == Path(f"/proc/{os.getpid()}")
        finally:
            other.kill()
