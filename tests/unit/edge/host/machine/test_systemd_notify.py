"""The lines systemd receives, from a real datagram socket."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.edge.host.machine.systemd_notify import STATUS_LIMIT, SystemdNotifier, parse_watchdog_seconds


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(5)
        yield receiver


def build_notifier(manager: socket.socket) -> SystemdNotifier:
    return SystemdNotifier.from_environment({"NOTIFY_SOCKET": manager.getsockname()})


def test_ready_carries_its_status(manager: socket.socket) -> None:
    """READY and STATUS arrive in one datagram, so that systemd never shows one without the other."""
    assert build_notifier(manager).ready("8 GPUs")
    assert manager.recv(4096) == b"READY=1\nSTATUS=8 GPUs"


def test_reloading_carries_the_monotonic_time(manager: socket.socket) -> None:
    """RELOADING comes with MONOTONIC_USEC, without which Type=notify-reload services fail to reload."""
    notifier = SystemdNotifier(manager.getsockname(), monotonic_ns=lambda: 1_234_567_999)
    assert notifier.reloading()
    assert manager.recv(4096) == b"RELOADING=1\nMONOTONIC_USEC=1234567"


def test_stopping_and_watchdog_are_plain(manager: socket.socket) -> None:
    """STOPPING and WATCHDOG need nothing beside them."""
    notifier = build_notifier(manager)
    assert notifier.stopping()
    assert notifier.watchdog()
    assert [manager.recv(4096), manager.recv(4096)] == [b"STOPPING=1", b"WATCHDOG=1"]


@pytest.mark.parametrize(
    ("status", "sent"),
    [
        pytest.param(
            "GPU x\nSTOPPING=1\r\x00\t\x7f", rb"GPU x\nSTOPPING=1\r\x00\t\x7f", id="an assignment is shown, not obeyed"
        ),
        pytest.param("y" * 1_000_000, b"y" * STATUS_LIMIT, id="any length fits the datagram"),
        pytest.param("", b" ", id="an empty one clears the one before"),
        pytest.param("name \udcff", rb"name \udcff", id="what cannot be encoded is escaped"),
    ],
)
def test_any_status_is_sent_as_one_line(manager: socket.socket, status: str, sent: bytes) -> None:
    """Systemd takes each line for an assignment, and keeps the last status that it was told."""
    assert build_notifier(manager).status(status)
    assert manager.recv(1 << 20) == b"STATUS=" + sent


def test_abstract_address_is_reached() -> None:
    """A leading @ names an abstract socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("")  # the kernel picks an abstract name
        receiver.settimeout(5)
        name = receiver.getsockname().decode()
        assert SystemdNotifier("@" + name[1:]).ready()
        assert receiver.recv(4096) == b"READY=1"


def test_without_a_manager_nothing_happens() -> None:
    """Outside systemd every call does nothing and is no error."""
    notifier = SystemdNotifier.from_environment({})
    sent = [notifier.ready(), notifier.status("x"), notifier.watchdog(), notifier.reloading(), notifier.stopping()]
    assert (notifier.active, any(sent), notifier.last_error) == (False, False, "")


def test_vanished_manager_is_reported_not_raised(tmp_path: Path) -> None:
    notifier = SystemdNotifier(str(tmp_path / "gone"))
    assert not notifier.ready()
    assert "cannot notify systemd" in notifier.last_error
    assert "No such file" in notifier.last_error


def test_recovered_manager_clears_the_error(tmp_path: Path, manager: socket.socket) -> None:
    """After a message that arrives there is no last error."""
    notifier = build_notifier(manager)
    Path(manager.getsockname()).rename(tmp_path / "elsewhere")
    assert not notifier.ready()
    (tmp_path / "elsewhere").rename(manager.getsockname())
    assert notifier.ready()
    assert notifier.last_error == ""


def test_full_queue_never_blocks(manager: socket.socket) -> None:
    """A manager that reads nothing costs messages, never time."""
    notifier = build_notifier(manager)
    sent = [notifier.watchdog() for _ in range(5000)]
    assert not sent[-1]
    assert notifier.last_error


def test_strange_address_is_named() -> None:
    """An address of a kind that is not supported leaves the notifier inactive and says why."""
    notifier = SystemdNotifier("vsock:2:1234")
    assert not notifier.active
    assert "vsock:2:1234" in notifier.last_error


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": "7"}, 1.5),
        ({"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": "8"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "-1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "٣"}, None),
    ],
)
def test_watchdog_interval_is_read_for_this_process_only(environ: dict[str, str], expected: float | None) -> None:
    """The interval counts only when it is a number and meant for this process."""
    assert parse_watchdog_seconds(environ, pid=7) == expected


def test_own_process_is_the_watched_one() -> None:
    """The environment of another process, inherited, sets no watchdog."""
    notifier = SystemdNotifier.from_environment({"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}, pid=2)
    assert notifier.watchdog_seconds is None
