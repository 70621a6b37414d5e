"""Asks a runtime over the CRI socket for name and version, the configuration in force, and the containers.

Owns the calls `Version`, `Status` and `ListContainers`. The daemon's answer counts more than the daemon's files: files
are read at the next start.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio

from nodeagent.edge.container_runtime.errors import RuntimeSilent
from nodeagent.edge.container_runtime.protobuf_fields import (
    AnswerMalformed,
    parse_fields,
    parse_numbers,
    parse_text_map,
    parse_texts,
)
from nodeagent.edge.grpc.caller import call_unary
from nodeagent.edge.grpc.errors import AnswerBroken, AnswerRefused
from nodeagent.model.fractions import ContainerState, PodContainer
from nodeagent.model.values import Value

_SERVICE = "/runtime.v1.RuntimeService"
_POD = "io.kubernetes.pod"
"""The prefix of the labels with which the kubelet names the pod of a container."""
_STATES = (ContainerState.CREATED, ContainerState.RUNNING, ContainerState.EXITED)
_VERBOSE = b"\x08\x01"
"""A `StatusRequest` whose first field, `verbose`, is true."""


class CriAnswer(Value, frozen=True):
    """A runtime's answer about name, version and configuration in force."""

    name: str
    version: str
    cdi_enabled: bool | None = None
    """`None` where the runtime does not say."""
    handlers: tuple[str, ...] | None = None
    """Runtime classes; `None` where the runtime does not say."""
    programs: Mapping[str, str] = {}
    """The low-level runtime's program by class, where the runtime names the program."""
    default_handler: str = ""
    """The class of a container that names no class; empty where the runtime does not say."""
    is_ready: bool | None = None
    """The runtime's condition `RuntimeReady`; `None` where the runtime does not say."""


async def ask_runtime(socket: str, *, timeout_seconds: float = 5.0) -> CriAnswer:
    """The answer of the runtime at the socket, and the configuration in force."""
    with _translating(socket, timeout_seconds):
        version = parse_texts(await _call(socket, "Version", b"", timeout_seconds))
        status = await _call(socket, "Status", _VERBOSE, timeout_seconds)
        return _describe(version, status)


async def list_containers(socket: str, *, timeout_seconds: float = 5.0) -> tuple[PodContainer, ...]:
    """All containers of pods, including ended containers not yet removed."""
    with _translating(socket, timeout_seconds):
        answer = await _call(socket, "ListContainers", b"", timeout_seconds)
        return tuple(_parse_container(content) for number, content in parse_fields(answer) if number == 1)


@contextmanager
def _translating(socket: str, timeout_seconds: float) -> Iterator[None]:
    """Turn every failure of the calls within into `RuntimeSilent`."""
    try:
        with anyio.fail_after(timeout_seconds):
            yield
    except TimeoutError as error:
        raise RuntimeSilent(socket, f"nothing within {timeout_seconds:g} s") from error
    except AnswerRefused as error:
        raise RuntimeSilent(socket, f"{error.status.name.lower()}, {error.text or 'without a reason'}") from error
    except (OSError, AnswerBroken, AnswerMalformed) as error:
        raise RuntimeSilent(socket, str(error) or type(error).__name__) from error


async def _call(socket: str, name: str, request: bytes, timeout_seconds: float) -> bytes:
    return await call_unary(Path(socket), f"{_SERVICE}/{name}", request, timeout_seconds=timeout_seconds)


def _describe(version: dict[int, str], status: bytes) -> CriAnswer:
    info = parse_text_map(status, 2)
    handlers = [parse_texts(content).get(1, "") for number, content in parse_fields(status) if number == 3]
    try:
        config = json.loads(info.get("config", "{}"))
    except ValueError:
        # CRI-O has text of its own there, without a word on CDI: CRI-O has no switch for CDI.
        config = {}
    # containerd from 2.4 on has no switch for CDI either, and names the directories alone.
    enabled = config.get("enableCDI", bool(config.get("cdiSpecDirs")) or None) if isinstance(config, dict) else None
    runtimes = _find_runtimes(config)
    return CriAnswer(
        name=version.get(2, ""),
        version=version.get(3, ""),
        cdi_enabled=enabled if isinstance(enabled, bool) else None,
        handlers=tuple(handlers) or (tuple(runtimes) if runtimes is not None else None),
        programs=find_programs(runtimes, ("options", "BinaryName")),
        default_handler=_find_text(config, ("containerd", "defaultRuntimeName")),
        is_ready=_find_ready(status),
    )


def _find_ready(status: bytes) -> bool | None:
    for number, content in parse_fields(status):
        conditions = [each for at, each in parse_fields(content) if at == 1] if number == 1 else []
        for condition in conditions:
            if parse_texts(condition).get(1) == "RuntimeReady":
                # A number that is zero is not sent.
                return parse_numbers(condition).get(2, 0) == 1
    return None


def find_programs(runtimes: Mapping[str, Any] | None, at: Sequence[str]) -> dict[str, str]:
    """The program of each runtime, from this place of the runtime's entry; without runtimes lacking a program."""
    found = {name: _find_text(entry, at) for name, entry in (runtimes or {}).items()}
    return {name: program for name, program in found.items() if program}


def _find_runtimes(config: Any) -> dict[str, Any] | None:
    containerd = config.get("containerd") if isinstance(config, dict) else None
    runtimes = containerd.get("runtimes") if isinstance(containerd, dict) else None
    return runtimes if isinstance(runtimes, dict) else None


def _find_text(value: Any, at: Sequence[str]) -> str:
    for key in at:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def _parse_container(message: bytes) -> PodContainer:
    contents, labels = dict(parse_fields(message)), parse_text_map(message, 8)
    # A number that is zero is not sent.
    state = parse_numbers(message).get(6, 0)
    return PodContainer(
        id=contents.get(1, b"").decode("utf-8", "replace"),
        pod_uid=labels.get(f"{_POD}.uid", ""),
        name=parse_texts(contents.get(3, b"")).get(1, ""),
        state=_STATES[state] if state < len(_STATES) else ContainerState.UNKNOWN,
        namespace=labels.get(f"{_POD}.namespace", ""),
        pod=labels.get(f"{_POD}.name", ""),
    )
