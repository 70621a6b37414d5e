"""A program that works through a daemon of the stand-in: its first line says what it may use."""

import os
import select
import socket
import sys

CONTROL = (os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps") + "/control"


def run_client() -> int:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(CONTROL)
    except OSError as error:
        sys.stdout.write(f"no daemon: {error}\n")
        return 1
    threads = os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") or "-"
    memory = os.environ.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT") or "-"
    connection.sendall(f"client! {os.getuid()} {threads} {memory}\n".encode())
    while True:
        watched: list[socket.socket | int] = [connection, 0]
        ready, _, _ = select.select(watched, [], [])
        if connection in ready:
            data = connection.recv(65536)
            if not data:
                return 1
            sys.stdout.write(data.decode())
            sys.stdout.flush()
        if 0 in ready and not os.read(0, 1):
            return 0


sys.exit(run_client())
