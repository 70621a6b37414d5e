"""Asks Docker over the socket for version and runtimes, and whether CDI is in force."""

import http.client
import json
import socket as sockets
from typing import Any

from nodeagent.edge.container_runtime.cri import CriAnswer, find_programs
from nodeagent.edge.container_runtime.errors import RuntimeSilent

_ANSWER_LIMIT_BYTES = 4 * 1024 * 1024


def ask_docker(path: str, *, timeout_seconds: float = 5.0) -> CriAnswer:
    """Docker's answer at the socket; blocks."""
    connection = http.client.HTTPConnection("localhost", timeout=timeout_seconds)
    connected = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
    connected.settimeout(timeout_seconds)
    connection.sock = connected
    try:
        connected.connect(path)
        connection.request("GET", "/info")
        told = json.loads(connection.getresponse().read(_ANSWER_LIMIT_BYTES))
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise RuntimeSilent(path, str(error) or type(error).__name__) from error
    finally:
        connection.close()
    return _describe(told if isinstance(told, dict) else {})


def _describe(told: dict[str, Any]) -> CriAnswer:
    runtimes = told.get("Runtimes")
    # Docker without CDI lacks the field; Docker with CDI lists directories only while CDI is on.
    directories = told.get("CDISpecDirs")
    return CriAnswer(
        name="docker",
        version=str(told.get("ServerVersion", "")),
        cdi_enabled=bool(directories) if "CDISpecDirs" in told else None,
        handlers=tuple(runtimes) if isinstance(runtimes, dict) else None,
        programs=find_programs(runtimes if isinstance(runtimes, dict) else None, ("path",)),
        default_handler=str(told.get("DefaultRuntime") or ""),
    )
