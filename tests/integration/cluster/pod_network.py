"""A network plugin for the test cluster: each pod in its own network, and on the machine nothing of it but loopback.

A pod's address is one of 127.0.0.0/8. A process for each pod carries connections from there into the pod's network,
and from the cluster address of the API server, which exists in the pod alone, out to the real one. It stands for the
pod network, the service proxy and the bridge of a real node.

Run by containerd, with the plain Python of the machine: nothing but the standard library is imported.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import secrets
import signal
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

SIOCSIFADDR, SIOCSIFFLAGS = 0x8916, 0x8914
IFF_UP, IFF_RUNNING = 0x1, 0x40
CLONE_NEWNET = 0x40000000
CHUNK_BYTES = 1 << 16
LOOPBACK = "loopback"
"""The name by which containerd 1 asks for a pod's loopback interface; containerd 2 brings it up by itself."""
_LIBC = ctypes.CDLL(None, use_errno=True)


class Way(NamedTuple):
    """One place where connections are taken, and where they are carried to."""

    listener: socket.socket
    target: tuple[str, int]
    namespace: int
    """The network from which the target is reached."""


def main() -> int:
    """Answer containerd; as `forward`, carry connections until killed."""
    if sys.argv[1:2] == ["forward"]:
        namespace, address, settings = sys.argv[2:]
        forward(namespace, address, json.loads(settings))
        return 0
    command = os.environ["CNI_COMMAND"]
    settings = json.load(sys.stdin)
    if command == "VERSION":
        answer(cniVersion="1.0.0", supportedVersions=["0.3.1", "1.0.0"])
    elif settings["type"] == LOOPBACK:
        bring_up(settings["cniVersion"], is_added=command == "ADD")
    elif command == "ADD":
        add(settings)
    elif command == "DEL":
        delete(record_of(settings))
    return 0


def bring_up(version: str, *, is_added: bool) -> None:
    """Say that the pod's loopback interface is up, as the pod network has it at once."""
    if is_added:
        interface = {"name": "lo", "sandbox": os.environ["CNI_NETNS"]}
        answer(
            cniVersion=version, interfaces=[interface], ips=[{"version": "4", "address": "127.0.0.1/8", "interface": 0}]
        )


def add(settings: dict[str, Any]) -> None:
    """Start the pod's carrier and tell the pod's address."""
    namespace = os.environ["CNI_NETNS"]
    address = ".".join(["127", *(str(1 + secrets.randbelow(254)) for _ in range(3))])
    wanted = json.dumps({key: settings[key] for key in ("api", "service", "ports")})
    carrier = subprocess.Popen(
        [sys.executable, __file__, "forward", namespace, address, wanted],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    record_of(settings).write_text(str(carrier.pid))
    assert carrier.stdout is not None
    carrier.stdout.readline()
    answer(
        cniVersion="1.0.0",
        interfaces=[{"name": os.environ["CNI_IFNAME"], "sandbox": namespace}],
        ips=[{"address": f"{address}/32", "interface": 0}],
    )


def delete(record: Path) -> None:
    """End the pod's carrier; asked again, there is nothing to do."""
    if record.exists():
        with contextlib.suppress(ProcessLookupError):  # it may have ended by itself
            os.kill(int(record.read_text()), signal.SIGKILL)
        record.unlink()


def record_of(settings: dict[str, Any]) -> Path:
    """Where the number of a pod's carrier is kept."""
    return Path(settings["directory"]) / f"{os.environ['CNI_CONTAINERID']}.pid"


def answer(**document: object) -> None:
    sys.stdout.write(json.dumps(document))


def forward(namespace: str, address: str, settings: dict[str, Any]) -> None:
    """Open every way, say so, and serve."""
    outside = os.open("/proc/self/ns/net", os.O_RDONLY)
    inside = os.open(namespace, os.O_RDONLY)
    ways = [Way(listen(outside, address, port), ("127.0.0.1", port), inside) for port in settings["ports"]]
    set_address(inside, settings["service"][0])
    api = ("127.0.0.1", settings["api"])
    ways.append(Way(listen(inside, *settings["service"]), api, outside))
    print("ready", flush=True)  # noqa: T201 - the plugin waits for this line
    for way in ways:
        threading.Thread(target=serve, args=(way,), daemon=True).start()
    signal.pause()


def serve(way: Way) -> None:
    """Carry each connection in two threads."""
    while True:
        near, _ = way.listener.accept()
        far = open_socket(way.namespace)
        try:
            far.connect(way.target)
        except OSError:
            near.close()
            far.close()
            continue
        for source, target in ((near, far), (far, near)):
            threading.Thread(target=carry, args=(source, target), daemon=True).start()


def carry(source: socket.socket, target: socket.socket) -> None:
    """One direction, to its end."""
    try:
        while chunk := source.recv(CHUNK_BYTES):
            target.sendall(chunk)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        source.close()
        target.close()


def listen(namespace: int, host: str, port: int) -> socket.socket:
    listener = open_socket(namespace)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(64)
    return listener


def open_socket(namespace: int) -> socket.socket:
    """A socket belongs to the network that its thread is in when it is made."""
    enter(namespace)
    return socket.socket()


def set_address(namespace: int, host: str) -> None:
    """Give the loopback interface of that network this address beside its own."""
    with open_socket(namespace) as control:
        for name, host_address in ((b"lo", "127.0.0.1"), (b"lo:0", host)):
            wanted = struct.pack("16sHH4s8x", name, socket.AF_INET, 0, socket.inet_aton(host_address))
            fcntl.ioctl(control, SIOCSIFADDR, wanted)
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP | IFF_RUNNING))


def enter(namespace: int) -> None:
    if _LIBC.setns(namespace, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


if __name__ == "__main__":
    sys.exit(main())
