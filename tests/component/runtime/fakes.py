"""A container runtime that reads its files when it is started, and does as the test says."""

import tomllib
from collections.abc import Sequence
from typing import Any

import anyio
from msgspec.structs import replace

from nodeagent.model.errors import NodeagentError
from nodeagent.model.ports import Withdraw
from nodeagent.model.runtime import (
    ConfigFile,
    ConfigTree,
    DaemonProcess,
    FileChange,
    Restored,
    RuntimeCandidate,
    RuntimeEvidence,
    RuntimeKind,
    TrialAnswer,
)

MAIN = "/etc/containerd/config.toml"
SECTION = "io.containerd.grpc.v1.cri"
WRAPPER = "/usr/bin/nvidia-container-runtime"
START = f'version = 2\n[plugins."{SECTION}"]\nsandbox_image = "pause"\n'.encode()


class FakeRuntime:
    """Containerd 1.7 with one file; CDI is in force from the start after it was written."""

    def __init__(self, content: bytes = START, version: str = "1.7.22") -> None:
        self.files: dict[str, bytes] = {MAIN: content}
        self.version = version
        self.alive = True
        self.gone = False
        self.also: tuple[RuntimeCandidate, ...] = ()
        self.socket = "/run/containerd/containerd.sock"
        self.unit = ""
        self.ignores_cdi = False
        self.breaks_when_restarted = False
        self.meddled_with: bytes | None = None
        """What somebody else makes of the file as soon as the next restart is over."""
        self.silent_seconds = 0.0
        """How long it does not answer after a restart."""
        self.took_seconds = 0.0
        """How long its last start took, by its service manager."""
        self.busy_share = 0.0
        """What it takes of a processor."""
        self.hides_processes = False
        self.hanging_seconds = 0.0
        """How long the restart's command takes."""
        self.refuses = ""
        self.broken = ""
        self.restarts: list[float] = []
        self.commands: list[tuple[str, ...]] = []
        """What was run for each of them."""
        self.writes = 0
        self.trials = 0
        self.no_trial = ""
        self.fails_on_the_side = ""
        self._first = dict(self.files)
        self._running = self._read_cdi()
        self._seen = dict(self.files)

    def meddle(self, content: bytes) -> None:
        """Somebody else writes the file."""
        self.files[MAIN] = content

    def forget_start(self) -> None:
        """The daemon was restarted by somebody else."""
        self._running = self._read_cdi()

    async def read_evidence(self) -> RuntimeEvidence:
        await self._work()
        began = self.restarts[-1] if self.restarts else -self.silent_seconds
        answers = self.alive and anyio.current_time() >= began + self.silent_seconds
        candidate = RuntimeCandidate(
            kind=RuntimeKind.CONTAINERD,
            socket=self.socket,
            pid=7,
            unit=self.unit,
            answers=answers,
            version=self.version if answers else "",
            cdi_in_force=(self._running and not self.ignores_cdi) if answers else None,
        )
        return RuntimeEvidence(candidates=() if self.gone else (candidate, *self.also), wrapper=WRAPPER)

    async def read_config(self, kind: RuntimeKind, main: str, extra: tuple[str, ...] = ()) -> ConfigTree:
        await self._work()
        self._seen = dict(self.files)
        return ConfigTree(files=(ConfigFile(path=main, content=self.files.get(main)),))

    async def wait_change(self) -> None:
        await self._work()
        while self._seen == self.files:  # noqa: ASYNC110  # as the real one does
            await anyio.sleep(1)

    async def check(self, kind: RuntimeKind, executable: str, tree: ConfigTree) -> bool:
        await self._work()
        if self.refuses:
            raise NodeagentError(self.refuses)
        return True

    async def try_out(self, executable: str, main: str, tree: ConfigTree) -> TrialAnswer:
        await self._work()
        self.trials += 1
        document = tomllib.loads((tree.files[0].content or b"").decode())
        enabled = bool(document["plugins"][SECTION].get("enable_cdi"))
        if self.fails_on_the_side and enabled:
            return TrialAnswer(said=self.fails_on_the_side)
        named = document["plugins"][SECTION].get("containerd", {}).get("runtimes", {"runc": {}})
        return TrialAnswer(obstacle=self.no_trial, is_ready=True, handlers=("", *named), cdi_enabled=enabled)

    async def apply(self, changes: Sequence[FileChange]) -> None:
        await self._work()
        self.writes += 1
        self._put(changes, back=False)

    async def undo(self, changes: Sequence[FileChange]) -> None:
        await self._work()
        self._put(changes, back=True)

    async def restore(self, withdraw: Withdraw) -> Restored:
        await self._work()
        self.files = dict(self._first)
        return Restored(given_back=(MAIN,))

    async def restart(self, command: Sequence[str]) -> None:
        await self._work()
        self.restarts.append(anyio.current_time())
        self.commands.append(tuple(command))
        while anyio.current_time() < self.restarts[-1] + self.hanging_seconds:  # noqa: ASYNC110  # on virtual time
            await anyio.sleep(0.5)
        enabled = self._read_cdi()
        self.alive = not (self.breaks_when_restarted and enabled)
        self._running = enabled
        if self.meddled_with is not None:
            self.files[MAIN], self.meddled_with = self.meddled_with, None
        if not self.alive:
            raise NodeagentError("the unit failed")

    async def measure_start(self, command: Sequence[str], timeout_seconds: float) -> float:
        await self._work()
        return self.took_seconds

    async def list_daemons(self, kind: RuntimeKind) -> tuple[DaemonProcess, ...]:
        await self._work()
        if self.hides_processes:
            raise NodeagentError("no answer about /proc")
        if not self.restarts:
            return ()
        age = anyio.current_time() - self.restarts[-1]
        return (DaemonProcess(pid=7, age_seconds=age, cpu_seconds=self.busy_share * age),)

    def _put(self, changes: Sequence[FileChange], *, back: bool) -> None:
        for change in changes:
            content = change.before if back else change.after
            if content is None:
                del self.files[change.path]
            else:
                self.files[change.path] = content

    def _read_cdi(self) -> bool:
        document: dict[str, Any] = tomllib.loads(self.files[MAIN].decode())
        return bool(document.get("plugins", {}).get(SECTION, {}).get("enable_cdi"))

    async def _work(self) -> None:
        await anyio.lowlevel.checkpoint()
        if self.broken:
            raise NodeagentError(self.broken)


CRIO = RuntimeCandidate(kind=RuntimeKind.CRIO, socket="/var/run/crio/crio.sock", answers=True, version="1.33.0")
DEAD = replace(CRIO, answers=False)
