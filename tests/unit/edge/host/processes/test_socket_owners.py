"""Who answers is known from the kernel, not from what is said."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from nodeagent.edge.host.processes.socket_owners import (
    can_connect,
    find_port_users,
    is_trusted,
    read_peer_user,
    read_port_users,
)

STRANGER = 54321
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
LISTENING = (
    "   1: 0100007F:24B8 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 9 1 0 100 0 0 10 0"
)
CONNECTED = (
    "   2: 0100007F:24B8 0100007F:A000 01 00000000:00000000 00:00000000 00000000     0        0 8 1 0 20 4 30 10 -1"
)
WIDE = "   0: 00000000000000000000000000000000:24B8 00000000000000000000000000000000:0000 0A 0:0 00:0 0  1001 0 7 1 0 1"
LISTEN = """
import os, socket, sys
os.setresuid(*[int(sys.argv[2])] * 3)
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("listening", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("lines", "users"),
    [
        ((HEAD, LISTENING, CONNECTED), {1000}),
        ((HEAD, CONNECTED), set()),
        ((HEAD, LISTENING, HEAD, WIDE), {1000, 1001}),
        ((HEAD, LISTENING.replace("24B8", "24B9"), "cut short"), set()),
    ],
)
def test_owners_of_a_port_are_those_who_listen(lines: tuple[str, ...], users: set[int]) -> None:
    """On any address and in both tables; a connection that nobody has accepted yet would be told as root's."""
    assert find_port_users(9400, lines) == users


def test_ones_own_port_is_found() -> None:
    """In the kernel's own tables."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert read_port_users(port) == {os.geteuid()}
    assert read_port_users(port) == frozenset()


def test_root_and_oneself_are_believed() -> None:
    assert is_trusted(0)
    assert is_trusted(os.geteuid())
    assert not is_trusted(STRANGER)


def test_the_one_who_listens_is_known(short_dir: Path) -> None:
    """By the time of the connection, before a word is said; a dead socket has nobody."""
    path = short_dir / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        assert not can_connect(path)
        listener.listen()
        assert can_connect(path)
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(str(path))
            assert read_peer_user(caller) == os.geteuid()
    assert not can_connect(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else too")
def test_a_stranger_is_known_as_one(short_dir: Path) -> None:
    """Another user's process behind a path of ours."""
    os.chown(short_dir, STRANGER, STRANGER)
    path = short_dir / "s"
    command = [sys.executable, "-I", "-S", "-c", LISTEN, str(path), str(STRANGER)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"listening\n"
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(str(path))
            assert read_peer_user(caller) == STRANGER
        process.communicate()
