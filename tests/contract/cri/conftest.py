import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.fakes.cri import EXITED, RUNNING, FakeCri
from tests.support.wire.runtimes import OpenRuntime, RuntimeUnderTest

__all__ = ["open_runtime"]

CONFIG = {
    "containerd": {"defaultRuntimeName": "runc", "runtimes": {"runc": {"runtimeType": "io.containerd.runc.v2"}}},
    "enableCDI": True,
}


class StandIn:
    """The stand-in as a runtime under test."""

    def __init__(self, cri: FakeCri, socket: Path) -> None:
        self._cri, self.socket = cri, socket

    async def run_pod(self, name: str) -> str:
        return self._add(name, RUNNING)

    async def end_pod(self, name: str) -> str:
        return self._add(name, EXITED)

    def _add(self, name: str, state: int) -> str:
        number = secrets.token_hex(32)
        labels = {"name": name, "namespace": "default", "uid": f"uid-of-{name}"}
        self._cri.containers[number] = {f"io.kubernetes.pod.{key}": text for key, text in labels.items()} | {
            "io.kubernetes.container.name": "main"
        }
        self._cri.states[number] = state
        return number


@pytest.fixture
def open_runtime(short_dir: Path) -> OpenRuntime:
    """The stand-in as the runtime under test."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[RuntimeUnderTest]:
        cri, socket = FakeCri(config=CONFIG, handlers=("", "runc")), short_dir / "cri.sock"
        async with cri.serving(socket):
            yield StandIn(cri, socket)

    return opened
