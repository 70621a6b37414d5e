"""Looks for container runtimes on the node, without judging which runtime counts.

Owns the way from a socket to the process behind the socket: the kernel gives the pid, and /proc then gives the binary
and the command line, both truer than any convention.
"""

import socket as sockets
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import anyio
from msgspec.structs import replace

from nodeagent.core.log.lines import get_logger
from nodeagent.edge.container_runtime.cri import CriAnswer, ask_runtime
from nodeagent.edge.container_runtime.docker import ask_docker
from nodeagent.edge.container_runtime.errors import RuntimeSilent
from nodeagent.edge.container_runtime.kubelet_endpoint import (
    parse_kubelet_config,
    parse_kubelet_config_flag,
    parse_kubelet_endpoint,
)
from nodeagent.edge.container_runtime.listeners import find_listener, read_arguments
from nodeagent.edge.container_runtime.starts import parse_unit
from nodeagent.edge.host.errors import HostError
from nodeagent.edge.host.files.pseudo_file import list_processes, read_attribute, read_raw_attribute
from nodeagent.edge.host.machine.host_paths import HostPaths
from nodeagent.model.runtime import RuntimeCandidate, RuntimeEvidence, RuntimeFlavour, RuntimeKind
from nodeagent.model.runtimes import RUNTIMES, guess_kind, is_adapter
from nodeagent.model.runtimes.record import RuntimePlace, RuntimeRecord

_log = get_logger(component="runtime")
WRAPPERS: Final = ("/usr/bin/nvidia-container-runtime", "/usr/local/nvidia/toolkit/nvidia-container-runtime")
_PROGRAM_DIRECTORIES: Final = ("/usr/local/bin", "/usr/bin", "/bin")
_CREDENTIALS: Final = struct.Struct("3i")
_CONNECT_SECONDS: Final = 1.0


class RuntimeDetector:
    """Detects the node's runtimes, at the usual sockets and the configured socket.

    All paths in arguments and answers are the host's paths, wherever the host's root is mounted.
    """

    def __init__(
        self,
        *,
        host_root: Path = Path("/"),
        proc_root: Path = Path("/proc"),
        socket: Path | None = None,
        command: str = "",
        timeout_seconds: float = 5.0,
    ) -> None:
        """Wire the detector up.

        Args:
            host_root: where the host's files are mounted.
            proc_root: where the host's processes are seen.
            socket: a socket to look at besides the usual sockets.
            command: the runtime's name in the settings, for a runtime without a daemon.
            timeout_seconds: how long a daemon may take to answer.
        """
        self._host, self._proc_root, self._socket = HostPaths(host_root), proc_root, socket
        self._command = next((each for each in RUNTIMES.values() if each.is_command and each.setting == command), None)
        self._timeout_seconds = timeout_seconds

    async def read_evidence(self) -> RuntimeEvidence:
        """Look once; a runtime that hangs costs the timeout and no more."""
        if self._command is not None:
            found = await anyio.to_thread.run_sync(self._find_command, self._command)
            return RuntimeEvidence(candidates=found, wrapper=await anyio.to_thread.run_sync(self._find_wrapper))
        endpoint = await anyio.to_thread.run_sync(self._find_kubelet_endpoint)
        places = await anyio.to_thread.run_sync(lambda: list(self._list_sockets(endpoint)))
        candidates: list[RuntimeCandidate] = []
        async with anyio.create_task_group() as tasks:
            for kind, flavour, socket in places:

                async def look(kind: RuntimeKind, flavour: RuntimeFlavour, socket: str) -> None:
                    candidates.append(await self._look_at(kind, flavour, socket))

                tasks.start_soon(look, kind, flavour, socket, name=f"look at {socket}")
        wrapper = await anyio.to_thread.run_sync(self._find_wrapper)
        order = [socket for _, _, socket in places]
        return RuntimeEvidence(
            candidates=tuple(sorted(candidates, key=lambda each: order.index(each.socket))),
            kubelet_endpoint=endpoint,
            wrapper=wrapper,
        )

    def _find_command(self, record: RuntimeRecord) -> tuple[RuntimeCandidate, ...]:
        places = (f"{directory}/{record.program}" for directory in _PROGRAM_DIRECTORIES)
        path = next((place for place in places if self._host.here(place).is_file()), "")
        return (RuntimeCandidate(kind=record.kind, socket="", answers=True, executable=path),) if path else ()

    def _find_wrapper(self) -> str:
        return next((path for path in WRAPPERS if self._host.here(path).exists()), "")

    def _list_sockets(self, endpoint: str) -> Iterator[tuple[RuntimeKind, RuntimeFlavour, str]]:
        daemons = [record for record in RUNTIMES.values() if not record.is_command]
        usual = [(record.kind, place) for record in daemons for place in self._list_places(record)]
        listed = {self._host.here(place.socket) for _, place in usual}
        if self._socket is not None and self._host.here(str(self._socket)) not in listed:
            listed.add(self._host.here(str(self._socket)))
            yield guess_kind(self._socket.name), RuntimeFlavour.PLAIN, str(self._socket)
        if endpoint and not is_adapter(endpoint) and self._is_strange(endpoint, listed):
            yield guess_kind(Path(endpoint).name), RuntimeFlavour.PLAIN, endpoint
        for kind, place in usual:
            if self._host.here(place.socket).is_socket():
                yield kind, place.flavour, place.socket

    def _list_places(self, record: RuntimeRecord) -> Iterable[RuntimePlace]:
        """A place for each socket: of distributions with the same socket, the distribution whose mark exists."""
        there = (place for place in record.places if not place.mark or self._host.here(place.mark).is_dir())
        return {place.socket: place for place in there}.values()

    def _is_strange(self, endpoint: str, listed: set[Path]) -> bool:
        """Whether the kubelet's configured socket exists and is none of the usual sockets."""
        places = {self._host.here(path) for path in (endpoint, f"/var{endpoint}", endpoint.removeprefix("/var"))}
        return not places & listed and self._host.here(endpoint).is_socket()

    async def _look_at(self, kind: RuntimeKind, flavour: RuntimeFlavour, socket: str) -> RuntimeCandidate:
        candidate = await anyio.to_thread.run_sync(lambda: self._find_listener(kind, flavour, socket))
        try:
            answer = await self._ask(kind, str(self._host.here(socket)))
        except RuntimeSilent as error:
            return replace(candidate, problem=error.reason)
        return replace(
            candidate,
            answers=True,
            version=answer.version.removeprefix("v"),
            cdi_in_force=answer.cdi_enabled,
            handlers=answer.handlers,
            programs=answer.programs,
            default_handler=answer.default_handler,
        )

    def _find_listener(self, kind: RuntimeKind, flavour: RuntimeFlavour, socket: str) -> RuntimeCandidate:
        """The process that listens at the socket, even where the kernel hides the process from clients."""
        pid = read_peer_pid(self._host.here(socket)) or self._find_hidden(kind, socket)
        process = self._proc_root / str(pid)
        arguments = read_arguments(process) if pid else ()
        return RuntimeCandidate(
            kind=kind,
            flavour=flavour,
            socket=socket,
            pid=pid,
            executable=_read_link(process / "exe") or _find_program(arguments) if pid else "",
            arguments=arguments,
            unit=parse_unit(read_raw_attribute(process / "cgroup").decode("utf-8", "replace")) if pid else "",
        )

    async def _ask(self, kind: RuntimeKind, socket: str) -> CriAnswer:
        if RUNTIMES[kind].speaks_cri:
            return await ask_runtime(socket, timeout_seconds=self._timeout_seconds)
        return await anyio.to_thread.run_sync(lambda: ask_docker(socket, timeout_seconds=self._timeout_seconds))

    def _find_kubelet_endpoint(self) -> str:
        """The running kubelet's endpoint, by the command line or by the configuration file named there."""
        for process in self._find_processes("kubelet"):
            arguments = read_arguments(process)
            return parse_kubelet_endpoint(arguments) or self._read_endpoint(parse_kubelet_config_flag(arguments))
        return ""

    def _read_endpoint(self, config_file: str) -> str:
        try:
            content = self._host.read(config_file) if config_file else None
        except HostError as error:
            _log.debug("kubelet_config_unreadable", path=config_file, reason=str(error))
            return ""
        return parse_kubelet_config(content) if content else ""

    def _find_processes(self, name: str) -> Iterator[Path]:
        return (each for each in list_processes(self._proc_root) if read_attribute(each / "comm") == name)

    def _find_hidden(self, kind: RuntimeKind, socket: str) -> int | None:
        record = RUNTIMES[kind]
        found = find_listener(list(self._find_processes(record.program)), socket, record, self._host)
        return int(found.name) if found is not None else None


def read_peer_pid(path: Path) -> int | None:
    """The process that listens on a socket; `None` without a listener, or where the pid is not visible."""
    connected = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
    connected.settimeout(_CONNECT_SECONDS)
    try:
        connected.connect(str(path))
        credentials = connected.getsockopt(sockets.SOL_SOCKET, sockets.SO_PEERCRED, _CREDENTIALS.size)
    except OSError:
        return None
    finally:
        connected.close()
    pid: int = _CREDENTIALS.unpack(credentials)[0]
    return pid or None


def _read_link(path: Path) -> str:
    try:
        return str(path.readlink()).removesuffix(" (deleted)")
    except OSError:
        return ""


def _find_program(arguments: Sequence[str]) -> str:
    """The program by the command line, for an agent whose capabilities do not suffice for the link in /proc."""
    return arguments[0] if arguments and arguments[0].startswith("/") else ""
