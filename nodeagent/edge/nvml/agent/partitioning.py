"""The port `GpuPartitioning` on real hardware: a worker process for the length of one change.

Owns the deadlines, which are long, because a call cut short in a driver does more harm than a late call.
Refuses to repeat a call: a call with a lost answer may have been made.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, asynccontextmanager
from typing import Final, TypeVar

import anyio
import msgspec
from anyio.abc import TaskGroup, TaskStatus
from msgspec import Struct, field

from nodeagent.core.children.child_process import ChildProcess, ChildSettings
from nodeagent.core.errors import ChildDied, ChildError, ChildStuck
from nodeagent.core.log.audit import noting
from nodeagent.edge.nvml import errors
from nodeagent.edge.nvml.agent.command import render_command, render_environment
from nodeagent.edge.nvml.agent.protocol import OPENED, Answer, Failure, translate_failure
from nodeagent.model.errors import DriverStuck, DriverUnavailable, GpuLost, PartitionRefused
from nodeagent.model.gpu import ComputeMode, Gpu
from nodeagent.model.mig import GpuPartitions, Write, WriteKind
from nodeagent.model.ports import PartitionSession
from nodeagent.model.values import Value

T = TypeVar("T")

_PARTITIONS: Final = msgspec.json.Decoder(Answer[GpuPartitions])
_WRITTEN: Final = msgspec.json.Decoder(Answer[int])
_RESET: Final = msgspec.json.Decoder(Answer[None])
_WHOLE: Final = frozenset({WriteKind.MODE_ON, WriteKind.MODE_OFF, WriteKind.RESET})
"""Calls that no process may have a handle of the GPU for, that of the agent's own reading included."""
_CAPABILITY: Final = "the process needs CAP_SYS_ADMIN, or access to the capability file of MIG's configuration"


class PartitioningSettings(Struct, frozen=True):
    """The driver's place, and the deadlines of driver calls."""

    driver_root: str = ""
    library: str = ""
    open_timeout_seconds: float = 10.0
    call_timeout_seconds: float = 60.0
    reset_timeout_seconds: float = 120.0
    environment: Mapping[str, str] = field(default_factory=dict)
    reset_command: Sequence[str] = ()
    """What resets one GPU, up to its PCI address; empty: `nvidia-smi` of the driver root."""
    tool: Sequence[str] = ()
    """The driver's own tool; empty: `nvidia-smi` of the driver root."""

    def render_reset(self, address: str) -> list[str]:
        """The command that resets the GPU at one address."""
        if self.reset_command:
            return [*self.reset_command, address]
        return [*self._find_tool(), "--gpu-reset", "-i", address]

    def render_time_slice(self, address: str, number: int) -> list[str]:
        """The command that sets the time slice of the GPU at one address; NVML has no such call."""
        return [*self._find_tool(), "compute-policy", "-i", address, "--set-timeslice", str(number)]

    def _find_tool(self) -> list[str]:
        root = self.driver_root.rstrip("/")
        return list(self.tool) or [*(("chroot", root) if root else ()), "nvidia-smi"]


class _Request(Value, frozen=True, omit_defaults=True):
    do: str
    gpu: str | None = None
    uuid: str | None = None
    write: Mapping[str, str | int] | None = None
    argv: tuple[str, ...] | None = None
    mode: int | None = None


class NvmlPartitioning:
    """Starts a worker for each change."""

    def __init__(
        self, settings: PartitioningSettings, set_aside: Callable[[], AbstractAsyncContextManager[None]]
    ) -> None:
        """`set_aside` has the reading worker give up all handles for a while."""
        self._settings, self._set_aside = settings, set_aside
        self._tasks: TaskGroup | None = None

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Supervise the workers of changes until cancelled; between changes no worker runs."""
        async with anyio.create_task_group() as self._tasks:
            task_status.started()
            await anyio.sleep_forever()

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[PartitionSession]:
        """A worker for one change, gone at the end of the block."""
        settings = self._settings
        child = ChildProcess(
            render_command(settings.driver_root, settings.library, cuts=True),
            env=render_environment(settings.environment),
            name="nvml-partitioner",
            settings=ChildSettings(kill_seconds=1.0),
        )
        assert self._tasks is not None
        await self._tasks.start(child.run, name="nvml partitioner")
        try:
            yield _Session(child, settings, self._set_aside)
        finally:
            with anyio.CancelScope(shield=True):
                await child.end()


class _Session:
    """One change."""

    def __init__(
        self,
        child: ChildProcess,
        settings: PartitioningSettings,
        set_aside: Callable[[], AbstractAsyncContextManager[None]],
    ) -> None:
        self._child, self._settings, self._set_aside = child, settings, set_aside

    async def read(self, gpu: Gpu) -> GpuPartitions:
        """All instances on the GPU."""
        what = f"reading the partitions of GPU {gpu.index}"
        request = _Request(do="partitions", gpu=gpu.pci.address, uuid=gpu.uuid)
        answer = await self._ask(request, _PARTITIONS, self._settings.call_timeout_seconds, what)
        if answer.failure is not None:
            _raise_lost(gpu, answer.failure)
            raise translate_failure(answer.failure)
        assert answer.value is not None
        return answer.value

    async def read_compute_mode(self, gpu: Gpu) -> ComputeMode:
        """The GPU's compute mode."""
        return ComputeMode(await self._compute_mode(gpu, None, "read the compute mode"))

    async def set_compute_mode(self, gpu: Gpu, mode: ComputeMode) -> None:
        """Set the GPU's compute mode."""
        what = f"set compute mode {mode.name}"
        with anyio.CancelScope(shield=True), _noting(gpu, what):
            await self._compute_mode(gpu, mode.value, what)

    async def _compute_mode(self, gpu: Gpu, mode: int | None, what: str) -> int:
        request = _Request(do="compute_mode", gpu=gpu.pci.address, uuid=gpu.uuid, mode=mode)
        answer = await self._ask(request, _WRITTEN, self._settings.call_timeout_seconds, f"{what} of GPU {gpu.index}")
        if answer.failure is not None:
            raise _translate(gpu, f"{what} of GPU {gpu.index}", answer.failure)
        return answer.value or 0

    async def set_time_slice(self, gpu: Gpu, number: int) -> None:
        """Set the GPU's time slice."""
        what = f"set time slice {number} of GPU {gpu.index}"
        request = _Request(do="tool", argv=tuple(self._settings.render_time_slice(gpu.pci.address, number)))
        with anyio.CancelScope(shield=True), _noting(gpu, what):
            answer = await self._ask(request, _RESET, self._settings.call_timeout_seconds, what)
            if answer.failure is not None:
                raise _translate(gpu, what, answer.failure)

    async def write(self, gpu: Gpu, write: Write) -> int:
        """Make one call to the end: a stop of the agent waits, as a driver left in a call may be lost."""
        with anyio.CancelScope(shield=True), _noting(gpu, write.describe()):
            return await self._write(gpu, write)
        raise AssertionError("what is shielded is never cut short")

    async def _write(self, gpu: Gpu, write: Write) -> int:
        async with AsyncExitStack() as stack:
            if write.kind in _WHOLE:
                await stack.enter_async_context(self._set_aside())
            if write.kind is WriteKind.RESET:
                return await self._reset(gpu, write)
            # With every value: the worker does not know the defaults, and 0 is the profile of a whole GPU.
            request = _Request(do="write", gpu=gpu.pci.address, uuid=gpu.uuid, write=msgspec.structs.asdict(write))
            answer = await self._ask(request, _WRITTEN, self._settings.call_timeout_seconds, write.describe())
        if answer.failure is not None:
            raise _translate(gpu, write.describe(), answer.failure)
        return answer.value or 0

    async def _reset(self, gpu: Gpu, write: Write) -> int:
        request = _Request(do="reset", argv=tuple(self._settings.render_reset(gpu.pci.address)))
        answer = await self._ask(request, _RESET, self._settings.reset_timeout_seconds, write.describe())
        if answer.failure is not None:
            raise _translate(gpu, write.describe(), answer.failure)
        return 0

    async def _ask(
        self, request: _Request, decoder: msgspec.json.Decoder[Answer[T]], timeout_seconds: float, what: str
    ) -> Answer[T]:
        answer = await self._request(request, decoder, timeout_seconds, what)
        if not answer.closed:
            return answer
        opened = await self._request(
            _Request(do="open"), OPENED, self._settings.open_timeout_seconds, "initialising NVML"
        )
        if opened.failure is not None:
            raise translate_failure(opened.failure)
        return await self._request(request, decoder, timeout_seconds, what)

    async def _request(
        self, request: _Request, decoder: msgspec.json.Decoder[Answer[T]], timeout_seconds: float, what: str
    ) -> Answer[T]:
        try:
            payload = await self._child.request(msgspec.json.encode(request), timeout_seconds=timeout_seconds)
            return decoder.decode(payload)
        except ChildStuck as error:
            raise DriverStuck(what, timeout_seconds) from error
        except ChildDied as error:
            raise DriverUnavailable(what, f"it ended the worker that cuts GPUs, which {error.how}") from error
        except (ChildError, msgspec.DecodeError) as error:
            raise DriverUnavailable(what, str(error)) from error


def _noting(gpu: Gpu, what: str) -> AbstractContextManager[None]:
    return noting("gpu", f"GPU {gpu.index} ({gpu.uuid})", what)


def _translate(gpu: Gpu, what: str, failure: Failure) -> PartitionRefused:
    _raise_lost(gpu, failure)
    reason = f"{failure.message}; {_CAPABILITY}" if failure.code == errors.NO_PERMISSION else failure.message
    return PartitionRefused(what, reason, in_use=failure.code == errors.IN_USE)


def _raise_lost(gpu: Gpu, failure: Failure) -> None:
    if failure.code in errors.LOST_CODES:
        raise GpuLost(str(gpu.index), failure.message)
