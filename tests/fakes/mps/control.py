"""The stand-in itself, which is installed as a program: see the package."""

import fcntl
import os
import select
import signal
import socket
import struct
import sys
import time
from contextlib import suppress
from itertools import chain
from typing import NoReturn

PIPES = os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps"
LOGS = os.environ.get("CUDA_MPS_LOG_DIRECTORY") or "/var/log/nvidia-mps"
CONTROL, PRIVILEGED, QUEUE, PID_FILE = (
    f"{PIPES}/{name}" for name in ("control", "control_privileged", "log", "nvidia-cuda-mps-control.pid")
)
NO_DAEMON = "Cannot find MPS control daemon process\n"
END = b"\0"


def behaves(word: str) -> bool:
    """Whether the test wants it so."""
    try:
        with open(sys.argv[0] + ".behaviour") as file:
            return word in file.read().split()
    except OSError:
        return False


def in_mib(size: str) -> int:
    return int(size[:-1]) * (1024 if size[-1] == "G" else 1)


def tell_size(size: str) -> str:
    """A limit as it is told: in whole G where it has one."""
    number = in_mib(size)
    return f"{number}M" if number < 1024 else f"{number // 1024}G"


def check_limit(limit: str) -> str:
    if limit[-1:] not in ("G", "M") or not limit[:-1].isdigit():
        raise ValueError(limit)
    return limit


def read_number(text: str) -> int:
    """As C reads it: what is no number is 0."""
    return int(text) if text.isdigit() else 0


def read_peer(connection: socket.socket) -> tuple[int, int]:
    """Process and user at the other end, as this process numbers them."""
    pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid


OF_OWNER = ("set_default_active_thread_percentage", "set_default_device_pinned_mem_limit")
WHO_MAY = "Control deamon settings can only be modified by the user started it or by the root user."
LOGGED = {"get_default_device_pinned_mem_limit": "No default pinned memory limit set for the device!"}
"""What goes into the log where nothing is said."""


class Server:
    """One server process, and who works through it."""

    def __init__(self, uid: int, percentage: float, memory: dict[int, str], pipe: int) -> None:
        self.uid, self.percentage, self.memory, self.pipe = uid, percentage, memory, pipe
        self.clients: dict[socket.socket, int] = {}


class Daemon:
    """The control daemon."""

    def __init__(self) -> None:
        self.percentage = 100.0
        self.memory: dict[int, str] = {}
        self.servers: dict[int, Server] = {}
        self.waiting_to_quit: socket.socket | None = None
        self.deadline: float | None = None
        self.connections: dict[socket.socket, bytes] = {}
        self.front_end: socket.socket | None = None

    def log(self, text: str) -> None:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S.000")
        os.write(self.log_file, f"[{stamp} Control {os.getpid():5}] {text}\n".encode())

    def listen(self) -> None:
        for directory in (PIPES, LOGS):
            with suppress(FileExistsError):
                os.mkdir(directory, 0o777)
        if not os.path.isdir(PIPES) or not os.access(PIPES, os.W_OK | os.X_OK):
            raise OSError(f"Cannot access CUDA_MPS_PIPE_DIRECTORY={PIPES}")
        lock = os.open(PIPES + "/control_lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise OSError("An instance of this daemon is already running") from None
        self.lock = lock
        self.log_file = os.open(LOGS + "/control.log", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self.sockets = [self.bind(CONTROL, 0o666), self.bind(PRIVILEGED, 0o755)]
        with suppress(FileExistsError):
            os.mkfifo(QUEUE, 0o777)
        with open(PID_FILE, "w") as file:
            file.write(f"{os.getpid()}\n")
        self.log(f"Starting control daemon using socket {CONTROL}")
        self.log(f"To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY={PIPES}")

    @staticmethod
    def bind(path: str, mode: int) -> socket.socket:
        with suppress(FileNotFoundError):
            os.unlink(path)
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        bound.bind(path)
        os.chmod(path, mode)
        bound.listen(64)
        return bound

    def serve(self) -> NoReturn:
        read, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        connections = self.connections
        while True:
            if behaves("die"):
                self.log("Segmentation fault")
                os.kill(os.getpid(), signal.SIGKILL)
            timeout = None if self.deadline is None else max(0.0, self.deadline - time.monotonic())
            watched: list[socket.socket | int] = [*self.sockets, read, *connections]
            ready, _, _ = select.select(watched, [], [], timeout)
            if read in ready:
                os.read(read, 4096)
            self.reap()
            for each in ready:
                if each in self.sockets and isinstance(each, socket.socket):
                    connection, _ = each.accept()
                    connections[connection] = b""
                    self.log("Accepting connection...")
                elif isinstance(each, socket.socket) and each in connections:
                    self.read(each)
            self.finish_quit()

    def read(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(65536)
        except OSError:
            data = b""
        if not data:
            self.drop(connection)
            return
        *lines, self.connections[connection] = (self.connections[connection] + data).split(b"\n")
        for line in lines:
            words = line.decode().split() or [""]
            if words[:1] == ["client!"]:
                # As this process numbers it, whatever the client's own namespace says.
                self.join(connection, read_peer(connection)[0], int(words[1]), *words[2:4])
            elif words == ["ui!"]:
                if self.front_end is not None:
                    # It serves one at a time, and turns others away without a word.
                    self.drop(connection)
                    return
                self.front_end = connection
                self.log("NEW UI")
            elif not behaves("hang"):
                self.log("Cmd:" + line.decode())
                answer = self.answer(connection, words)
                if answer is not None:
                    for text in answer.splitlines() or LOGGED.get(words[0], "").splitlines():
                        self.log(text)
                    connection.sendall(answer.encode() + END)

    def drop(self, connection: socket.socket) -> None:
        self.connections.pop(connection, None)
        if connection is self.front_end:
            self.front_end = None
            self.log("UI closed")
        connection.close()
        for server in self.servers.values():
            server.clients.pop(connection, None)

    def reap(self) -> None:
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            server = self.servers.pop(pid, None)
            if server is not None:
                self.log(f"Server {pid} exited with status 1")
                os.close(server.pipe)
                for connection in list(server.clients):
                    self.drop(connection)

    def start_server(self, uid: int) -> int:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(write)
            for listening in self.sockets:
                listening.close()
            os.close(self.lock)
            os.close(self.log_file)
            for connection in self.connections:
                connection.close()
            for server in self.servers.values():
                os.close(server.pipe)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.read(read, 1)  # until the daemon is gone
            os._exit(0)
        os.close(read)
        self.log(f"Starting new server {pid} for user {uid}")
        self.servers[pid] = Server(uid, self.percentage, dict(self.memory), write)
        return pid

    def join(self, connection: socket.socket, pid: int, uid: int, percentage: str = "-", memory: str = "-") -> None:
        if self.waiting_to_quit is not None:
            self.drop(connection)
            return
        number = next((pid for pid, one in self.servers.items() if one.uid == uid), None) or self.start_server(uid)
        server = self.servers[number]
        server.clients[connection] = pid
        self.log(f"NEW CLIENT {pid} from user {uid}: Server already exists")
        # A client's own limits count where they are tighter than the server's.
        threads = server.percentage if percentage == "-" else min(server.percentage, float(percentage))
        sizes = dict(server.memory)
        for device, _, size in (one.partition("=") for one in memory.split(",") if one != "-"):
            sizes[int(device)] = min(sizes.get(int(device), size), size, key=in_mib)
        told = ",".join(f"{device}={size}" for device, size in sorted(sizes.items()))
        connection.sendall(f"threads {threads} memory {told or '-'}\n".encode())

    def answer(self, connection: socket.socket, words: list[str]) -> str | None:
        command, arguments = words[0], words[1:]
        of_server = getattr(self, "server_" + command, None)
        handler = of_server or getattr(self, "do_" + command, None)
        if handler is None or (behaves("no-limits") and "pinned_mem_limit" in command):
            return f'Unknown command "{command}"\n'
        if command in OF_OWNER and self.is_stranger(connection):
            uid = read_peer(connection)[1]
            return f"Insufficient privileges for UID {uid}. {WHO_MAY}\n"
        number = read_number(arguments[0]) if arguments else 0
        if of_server is not None and number not in self.servers:
            return f"Server {number} not found\n"
        try:
            if of_server is not None:
                return str(of_server(self.servers[number], *arguments[1:]))
            answer: str | None = handler(connection, *arguments)
        except (TypeError, ValueError, KeyError, IndexError):
            return ""
        return answer

    @staticmethod
    def is_stranger(connection: socket.socket) -> bool:
        return read_peer(connection)[1] not in (0, os.getuid())

    def do_get_server_list(self, _: socket.socket) -> str:
        return "".join(f"{pid}\n" for pid in self.servers)

    def do_start_server(self, _: socket.socket, flag: str, uid: str) -> str:
        if flag != "-uid":
            raise ValueError(flag)
        self.start_server(int(uid))
        return ""

    def server_get_client_list(self, server: Server) -> str:
        return "".join(f"{client}\n" for client in server.clients.values())

    def do_set_default_active_thread_percentage(self, _: socket.socket, percentage: str = "0") -> str:
        wanted = round(float(percentage), 1)
        self.percentage = wanted if 0 < wanted <= 100 else self.percentage
        return f"{self.percentage}\n"

    def do_get_default_active_thread_percentage(self, _: socket.socket) -> str:
        return f"{self.percentage}\n"

    def server_set_active_thread_percentage(self, server: Server, percentage: str) -> str:
        server.percentage = float(percentage)
        return f"{server.percentage}\n"

    def server_get_active_thread_percentage(self, server: Server) -> str:
        return f"{server.percentage}\n"

    def do_set_default_device_pinned_mem_limit(self, _: socket.socket, device: str, limit: str) -> str:
        self.memory[int(device)] = check_limit(limit)
        return ""

    def do_get_default_device_pinned_mem_limit(self, _: socket.socket, device: str) -> str:
        return f"{tell_size(self.memory[int(device)])}\n"

    def server_set_device_pinned_mem_limit(self, server: Server, device: str, limit: str) -> str:
        server.memory[int(device)] = check_limit(limit)
        return ""

    def server_get_device_pinned_mem_limit(self, server: Server, device: str) -> str:
        return f"{tell_size(server.memory[int(device)])}\n"

    def do_quit(self, connection: socket.socket, *arguments: str) -> str | None:
        if self.is_stranger(connection):
            return "Not enough privilege to execute quit command\n"
        if behaves("stay"):
            return ""
        if behaves("ignore-quit"):
            return None
        self.waiting_to_quit = connection
        self.deadline = time.monotonic() + float(arguments[1]) if arguments[:1] == ("-t",) else None
        return None

    def finish_quit(self) -> None:
        if self.waiting_to_quit is None:
            return
        is_late = self.deadline is not None and time.monotonic() >= self.deadline
        if any(server.clients for server in self.servers.values()) and not is_late:
            return
        for pid in self.servers:
            os.kill(pid, signal.SIGKILL)
        self.log("Exit with status 0")
        for name in (PID_FILE, QUEUE):
            os.unlink(name)
        self.waiting_to_quit.sendall(END)
        os._exit(0)


def run_daemon() -> int:
    if behaves("refuse"):
        sys.stdout.write("Failed to start the daemon: no CUDA-capable device is detected\n")
        return 1
    if behaves("hang-start"):
        time.sleep(600)
    daemon = Daemon()
    read, write = os.pipe()
    if os.fork():
        os.close(write)
        told = os.read(read, 4096)
        sys.stdout.write(told[1:].decode())
        return 0 if told[:1] == b"+" else 1
    os.setsid()
    if os.fork():
        os._exit(0)
    os.close(read)
    try:
        daemon.listen()
    except OSError as error:
        os.write(write, f"-{error}\n".encode())
        os._exit(1)
    os.write(write, b"+")
    os.close(write)
    null = os.open("/dev/null", os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    return daemon.serve()


def run_front_end() -> int:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(CONTROL if os.getuid() else PRIVILEGED)
    except OSError:
        sys.stderr.write(NO_DAEMON)
        return 1
    for line in chain(("ui!\n",), sys.stdin):
        try:
            connection.sendall(line.strip().encode() + b"\n")
        except OSError:
            sys.stderr.write("Cannot send command to MPS control daemon process\n")
            return 1
        if line == "ui!\n":
            continue
        answer = b""
        while not answer.endswith(END):
            try:
                data = connection.recv(65536)
            except ConnectionResetError:
                data = b""  # closed by a daemon that has not read what was asked
            if not data:
                return 0
            answer += data
        sys.stdout.write(answer[:-1].decode())
        sys.stdout.flush()
    connection.close()
    return 0


starts = [["-d"], ["-d", "-M"]] if behaves("multi-user") else [["-d"]]
sys.exit(run_daemon() if sys.argv[1:] in starts else run_front_end())
