"""The look for GPUs that a node without any pays for: what counts as one, and what a program that waits becomes."""

import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nodeagent.edge.host.devices import gpu_arrival
from nodeagent.edge.host.devices.gpu_arrival import has_gpu


def put_function(devices: Path, vendor: str, pci_class: str, address: str = "0000:17:00.0") -> None:
    """A PCI function as sysfs shows it."""
    place = devices / address
    place.mkdir(parents=True)
    (place / "vendor").write_text(f"{vendor}\n")
    (place / "class").write_text(f"{pci_class}\n")


@pytest.mark.parametrize(
    ("vendor", "pci_class", "counts"),
    [
        ("0x10de", "0x030200", True),
        ("0x10de", "0x030000", True),
        ("0x10de", "0x120000", False),
        ("0x10de", "0x040300", False),  # the sound of a display card
        ("0x10de", "0x068000", False),  # an NVSwitch
        ("0x1002", "0x030000", False),
        ("", "", False),
    ],
)
def test_a_gpu_is_a_display_controller_of_nvidia(tmp_path: Path, vendor: str, pci_class: str, counts: bool) -> None:
    """By vendor and class, as node feature discovery goes; what cannot be read is none."""
    put_function(tmp_path, "0x8086", "0x060000", "0000:00:00.0")
    put_function(tmp_path, vendor, pci_class)
    assert has_gpu(str(tmp_path), ()) is counts


@pytest.mark.parametrize(
    ("name", "counts"), [("nvidia0", True), ("nvidiactl", True), ("nvidia-uvm", False), ("null", False)]
)
def test_device_nodes_of_the_driver_say_that_there_is_a_gpu(tmp_path: Path, name: str, counts: bool) -> None:
    """Where sysfs shows nothing of the host; a node of a module that any GPU-less node may load says nothing."""
    (tmp_path / name).touch()
    assert has_gpu(str(tmp_path / "none"), (str(tmp_path / "none"), str(tmp_path))) is counts


def open_listener() -> socket.socket:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.set_inheritable(True)
    return listener


def start_waiting(listener: socket.socket, place: Path, *, seconds: str = "0.01") -> subprocess.Popen[str]:
    """The program with one socket in both roles, which becomes one that says what it was given."""
    other = socket.socket(fileno=socket.dup(listener.fileno()))
    other.set_inheritable(True)
    words = [str(listener.fileno()), str(other.fileno()), seconds, str(place), "--"]
    command = [sys.executable, "-c", "import sys; print(sys.argv[1:])", "a", "b"]
    with other:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", gpu_arrival.__file__, *words, *command],
            pass_fds=(listener.fileno(), other.fileno()),
            stdout=subprocess.PIPE,
            text=True,
        )


def ask(listener: socket.socket, request: bytes) -> bytes:
    with socket.create_connection(listener.getsockname()) as connection:
        connection.settimeout(30)
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(4096), b""))


def test_the_first_gpu_is_found_without_a_word(tmp_path: Path) -> None:
    """The program looks again by itself, and becomes the command that it was given."""
    with open_listener() as listener, start_waiting(listener, tmp_path) as process:
        assert b" 200 OK" in ask(listener, b"GET /livez HTTP/1.1\r\n\r\n")
        put_function(tmp_path, "0x10de", "0x030200")
        assert process.communicate(timeout=30)[0].strip() == "['a', 'b']"
        assert process.returncode == 0


def test_who_asks_slowly_or_at_length_keeps_nobody_waiting(tmp_path: Path) -> None:
    """Connections are few, requests short, and each new one is answered all the same."""
    with open_listener() as listener, start_waiting(listener, tmp_path, seconds="600") as process:
        slow = [socket.create_connection(listener.getsockname()) for _ in range(100)]
        try:
            for each in slow:
                each.sendall(b"GET /")
            assert b" 200 OK" in ask(listener, b"GET /readyz HTTP/1.1\r\n\r\n")
            assert b" 503 " in ask(listener, b"x" * 8192)
            # Each is closed once there are too many of them, the oldest first.
            slow[0].settimeout(30)
            assert slow[0].recv(1) == b""
        finally:
            for each in slow:
                each.close()
        process.terminate()
        assert process.wait(30) == 0


def test_half_a_request_is_no_question(tmp_path: Path) -> None:
    """Who says it and closes gets no answer, and whoever comes next gets his."""
    with open_listener() as listener, start_waiting(listener, tmp_path, seconds="600") as process:
        with socket.create_connection(listener.getsockname()) as connection:
            connection.sendall(b"GET /rea")
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1) == b""
        answers: list[bytes] = []
        asking = [
            threading.Thread(target=lambda: answers.append(ask(listener, b"GET /metrics HTTP/1.1\r\n\r\n")))
            for _ in range(8)
        ]
        for each in asking:
            each.start()
        for each in asking:
            each.join(30)
        assert len(answers) == 8
        assert all(each.startswith(b"HTTP/1.1 200 OK\r\n") and each.endswith(b"\r\n\r\n") for each in answers)
        process.terminate()
        assert process.wait(30) == 0
