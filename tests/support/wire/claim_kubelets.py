"""Kubelets as drivers of claims meet them: what a test may ask of one, whether it is the stand-in or the real one."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

import anyio
from anyio.abc import TaskGroup
from grpclib.exceptions import GRPCError, StreamTerminatedError

from nodeagent.edge.kubelet.claim_session import ClaimSession
from nodeagent.model.claims import ClaimReference, ClaimStanding, DeviceAnswer, DeviceHealth
from tests.support.wire.claim_kubelet import ClaimKubelet, registered
from tests.support.wire.kubelets import no_crash

DRIVER = "contract.example.com"


class RecordingDriver:
    """Gives each claim one device, and remembers what it was asked."""

    def __init__(self) -> None:
        self.prepared: list[tuple[ClaimReference, ...]] = []
        self.unprepared: list[tuple[ClaimReference, ...]] = []
        self.health_asked = anyio.Event()

    async def prepare(self, claims: Sequence[ClaimReference]) -> Mapping[str, tuple[DeviceAnswer, ...] | str]:
        self.prepared.append(tuple(claims))
        answer = DeviceAnswer(requests=("gpu",), pool="pool", device="d0", cdi_names=())
        return {claim.uid: (answer,) for claim in claims}

    async def unprepare(self, claims: Sequence[ClaimReference]) -> Mapping[str, str]:
        self.unprepared.append(tuple(claims))
        return {claim.uid: "" for claim in claims}

    async def wait_health(self, known: tuple[DeviceHealth, ...] | None) -> tuple[DeviceHealth, ...]:
        self.health_asked.set()
        if known is not None:
            await anyio.sleep_forever()
        return ()


class ClaimKubeletUnderTest(Protocol):
    """The least that the contract needs."""

    @property
    def plugins_dir(self) -> Path: ...

    @property
    def registry_dir(self) -> Path: ...

    async def wait_registered(self) -> None:
        """Return when the kubelet asks the driver."""

    async def make_claim(self, name: str) -> ClaimReference:
        """A claim that lives until the end of the test."""

    async def run_pod(self, name: str, *claims: ClaimReference) -> None:
        """Have a pod with these claims run."""

    async def end_pod(self, name: str) -> None:
        """Delete a pod and wait until it is gone."""

    async def restart(self) -> None:
        """End the process and begin a new one; pods go on running."""


OpenClaimKubelet = Callable[[], AbstractAsyncContextManager[ClaimKubeletUnderTest]]


class StandInClaimKubelet:
    """Asks as the kubelet does: a pod's claims in one question, each once in a life, put away after its last pod."""

    def __init__(self, root: Path, tasks: TaskGroup) -> None:
        self._tasks, self._watching = tasks, anyio.CancelScope()
        self.plugins_dir, self.registry_dir = root / "plugins", root / "plugins_registry"
        self._pods: dict[str, tuple[ClaimReference, ...]] = {}
        self._asked: set[str] = set()
        self._stack = AsyncExitStack()
        self._line: ClaimKubelet | None = None

    async def wait_registered(self) -> None:
        self._line = await self._stack.enter_async_context(registered(self.registry_dir))
        self._watching = anyio.CancelScope()
        self._tasks.start_soon(self._watch_health, self._line, self._watching)

    async def make_claim(self, name: str) -> ClaimReference:
        return ClaimReference(namespace="default", name=name, uid=f"uid-of-{name}")

    async def run_pod(self, name: str, *claims: ClaimReference) -> None:
        self._pods[name] = claims
        await self._prepare(claims)

    async def end_pod(self, name: str) -> None:
        claims = self._pods.pop(name)
        used = {claim.uid for others in self._pods.values() for claim in others}
        free = tuple(claim for claim in claims if claim.uid not in used)
        if free:
            assert self._line is not None
            await self._line.unprepare(*free)
        self._asked -= {claim.uid for claim in free}

    async def restart(self) -> None:
        await self.aclose()
        self._asked.clear()
        await self.wait_registered()

    async def aclose(self) -> None:
        self._watching.cancel()
        stack, self._stack = self._stack, AsyncExitStack()
        await stack.aclose()

    async def _watch_health(self, line: ClaimKubelet, scope: anyio.CancelScope) -> None:
        # A driver that goes ends its stream, and the kubelet asks again by its next registration.
        with scope, suppress(GRPCError, StreamTerminatedError):
            async with aclosing(line.watch_health()) as told:
                async for _ in told:
                    pass

    async def _prepare(self, claims: tuple[ClaimReference, ...]) -> None:
        fresh = tuple(claim for claim in claims if claim.uid not in self._asked)
        if fresh:
            assert self._line is not None
            await self._line.prepare(*fresh)
        self._asked |= {claim.uid for claim in fresh}


@asynccontextmanager
async def running_driver(kubelet: ClaimKubeletUnderTest, driver: RecordingDriver) -> AsyncIterator[list[ClaimStanding]]:
    """A driver that is kept registered for as long as the block lasts."""
    reports: list[ClaimStanding] = []
    session = ClaimSession(
        driver,
        DRIVER,
        kubelet.plugins_dir / DRIVER / "dra.sock",
        kubelet.registry_dir / f"{DRIVER}-reg.sock",
        report=reports.append,
        report_crash=no_crash,
    )
    opened = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.run, opened.set)
        await opened.wait()
        await kubelet.wait_registered()
        yield reports
        tasks.cancel_scope.cancel()
