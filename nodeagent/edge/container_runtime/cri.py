"""Asks a runtime over its CRI socket who it is, which configuration it has in force, and which containers it runs.

Owns the calls `Version`, `Status` and `ListContainers`. What the daemon says about itself counts more than what its
files say: files are read at its next start.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

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
from nodeagent.model.usage import ContainerName
from nodeagent.model.values import Value

_SERVICE = "/runtime.v1.RuntimeService"
_VERBOSE = b"\x08\x01"
"""A `StatusRequest` whose first field, `verbose`, is true."""
_RUNNING = b"\x0a\x04\x12\x02\x08\x01"
"""A `ListContainersRequest` whose filter has the state `CONTAINER_RUNNING`."""
_CONTAINERS: Final = 1
_ID, _LABELS = 1, 8
_OF_KUBERNETES: Final = "io.kubernetes"
"""What the labels begin with in which the kubelet says whose a container is."""


class CriAnswer(Value, frozen=True):
    """What a runtime says about itself."""

    name: str
    version: str
    cdi_enabled: bool | None = None
    """`None` when it does not tell."""
    handlers: tuple[str, ...] | None = None
    """Runtime classes; `None` when it does not tell."""
    is_ready: bool | None = None
    """Its own condition `RuntimeReady`; `None` when it does not tell."""


async def ask_runtime(socket: str, *, timeout_seconds: float = 5.0) -> CriAnswer:
    """Who answers at the socket, and what is in force.

    Raises:
        RuntimeSilent: nobody, or not in time, or nonsense.
    """
    with _hearing(socket, timeout_seconds):
        with anyio.fail_after(timeout_seconds):
            version = parse_texts(await _call(socket, "Version", b"", timeout_seconds))
            status = await _call(socket, "Status", _VERBOSE, timeout_seconds)
        return _describe(version, status)


async def list_containers(socket: str, *, timeout_seconds: float = 5.0) -> dict[str, ContainerName]:
    """The containers that run now, by their ids; those that no kubelet has made are left out.

    Raises:
        RuntimeSilent: nobody answers, or not in time, or nonsense.
    """
    with _hearing(socket, timeout_seconds):
        with anyio.fail_after(timeout_seconds):
            answer = await _call(socket, "ListContainers", _RUNNING, timeout_seconds)
        containers = [content for number, content in parse_fields(answer) if number == _CONTAINERS]
        named = {parse_texts(content).get(_ID, ""): _name(parse_text_map(content, _LABELS)) for content in containers}
    return {container: name for container, name in named.items() if container and name.container}


class CriContainers:
    """The port `ContainerNames` over the socket of the runtime that serves the kubelet."""

    def __init__(self, find_socket: Callable[[], str], *, timeout_seconds: float = 5.0) -> None:
        self._find_socket, self._timeout_seconds = find_socket, timeout_seconds

    async def read_names(self) -> Mapping[str, ContainerName]:
        """The containers that run now, by their ids.

        Raises:
            RuntimeSilent: the runtime is not known, or does not answer.
        """
        socket = self._find_socket()
        if not socket:
            raise RuntimeSilent("the container runtime", "its socket is not known; `runtime.socket` names it")
        return await list_containers(socket, timeout_seconds=self._timeout_seconds)


@contextmanager
def _hearing(socket: str, timeout_seconds: float) -> Iterator[None]:
    """Call what goes wrong by one name."""
    try:
        yield
    except TimeoutError as error:
        raise RuntimeSilent(socket, f"nothing within {timeout_seconds:g} s") from error
    except AnswerRefused as error:
        raise RuntimeSilent(socket, f"{error.status.name.lower()}, {error.text or 'without a reason'}") from error
    except (OSError, AnswerBroken, AnswerMalformed) as error:
        raise RuntimeSilent(socket, str(error) or type(error).__name__) from error


def _name(labels: Mapping[str, str]) -> ContainerName:
    return ContainerName(
        namespace=labels.get(f"{_OF_KUBERNETES}.pod.namespace", ""),
        pod=labels.get(f"{_OF_KUBERNETES}.pod.name", ""),
        container=labels.get(f"{_OF_KUBERNETES}.container.name", ""),
        pod_uid=labels.get(f"{_OF_KUBERNETES}.pod.uid", ""),
    )


async def _call(socket: str, name: str, request: bytes, timeout_seconds: float) -> bytes:
    return await call_unary(Path(socket), f"{_SERVICE}/{name}", request, timeout_seconds=timeout_seconds)


def _describe(version: dict[int, str], status: bytes) -> CriAnswer:
    info = parse_text_map(status, 2)
    handlers = [parse_texts(content).get(1, "") for number, content in parse_fields(status) if number == 3]
    try:
        config = json.loads(info.get("config", "{}"))
    except ValueError:
        # CRI-O has text of its own there, which says nothing about CDI: it has no switch for it.
        config = {}
    enabled = config.get("enableCDI") if isinstance(config, dict) else None
    return CriAnswer(
        name=version.get(2, ""),
        version=version.get(3, ""),
        cdi_enabled=enabled if isinstance(enabled, bool) else None,
        handlers=tuple(handlers) or _find_runtimes(config),
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


def _find_runtimes(config: Any) -> tuple[str, ...] | None:
    containerd = config.get("containerd") if isinstance(config, dict) else None
    runtimes = containerd.get("runtimes") if isinstance(containerd, dict) else None
    return tuple(runtimes) if isinstance(runtimes, dict) else None
