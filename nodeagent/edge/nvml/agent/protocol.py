"""The protocol between agent and worker, on the agent's side: typed, and any deviation is an error.

Owns the translation of NVML's codes into the agent's errors.
The worker builds the same forms as plain dictionaries, because the worker imports no decoder.
"""

import re
from typing import Generic, TypeVar

import msgspec

from nodeagent.edge.nvml import errors
from nodeagent.edge.nvml.shared import KINDS, XID
from nodeagent.model.driver import LibraryAnswer, LibraryOutcome
from nodeagent.model.errors import DriverError, DriverMismatch, DriverUnavailable
from nodeagent.model.events import GpuEventReported, XidReported
from nodeagent.model.gpu import Fabric, Gpu
from nodeagent.model.ids import GpuUuid
from nodeagent.model.ports import GpuEvent
from nodeagent.model.telemetry import GpuSample
from nodeagent.model.values import Value

_ANY_INSTANCE = 0xFFFFFFFF
_VERSION_IN_NAME = re.compile(r"\.so\.([0-9][0-9.]*[0-9])$")

T = TypeVar("T")


class Request(Value, frozen=True, omit_defaults=True):
    """A question; the arguments depend on `do`."""

    do: str
    gpu: str | None = None
    """A PCI address."""
    uuid: str | None = None
    index: int | None = None
    others: tuple[tuple[str, str], ...] | None = None
    gpus: tuple[tuple[int, str, str], ...] | None = None
    """Index, PCI address and UUID of each GPU to be sampled."""
    whole: bool = True
    """Whether the levels are due, too."""
    extras: tuple[str, ...] = ()
    """Readings that are wanted beside an ordinary sample."""
    sysfs: str = ""
    """Where the kernel shows the PCI bus; empty where nothing is to be read there."""


_OUTCOMES = {
    errors.SUCCESS: LibraryOutcome.WORKS,
    errors.UNLOADABLE: LibraryOutcome.UNLOADABLE,
    errors.NO_PERMISSION: LibraryOutcome.NO_PERMISSION,
    errors.DRIVER_NOT_LOADED: LibraryOutcome.DRIVER_NOT_LOADED,
    errors.TIMEOUT: LibraryOutcome.TIMEOUT,
    errors.LIBRARY_NOT_FOUND: LibraryOutcome.NOT_FOUND,
    errors.OPERATING_SYSTEM: LibraryOutcome.NO_PERMISSION,
    errors.VERSION_MISMATCH: LibraryOutcome.VERSION_MISMATCH,
    errors.GPU_NOT_FOUND: LibraryOutcome.NO_GPU,
}


def read_code(code: int, message: str = "", library_path: str = "") -> LibraryAnswer:
    """NVML's return code, as the driver is judged by it."""
    outcome = _OUTCOMES.get(code, LibraryOutcome.FAILED)
    return LibraryAnswer(outcome=outcome, code=code, message=message, library_path=library_path)


class Failure(Value, frozen=True):
    """A failed call about a whole GPU or the driver."""

    code: int
    message: str
    library_path: str = ""


class Answer(Value, Generic[T], frozen=True):
    """A value, a failure, or the sign that the library has to be opened first."""

    value: T | None = None
    failure: Failure | None = None
    closed: bool = False


class SampleAnswer(Value, frozen=True):
    """The samples of the requested GPUs in the same order, and the number of calls."""

    samples: tuple[GpuSample, ...]
    calls: int
    spent: tuple[tuple[str, int, float], ...] = ()
    """Function, calls and seconds since the last whole sample."""
    failures: tuple[tuple[str, int, int], ...] = ()
    """Function, code and how often, likewise."""


class Report(Value, frozen=True):
    """A report without a question: an event, or the end of events."""

    gpu: GpuUuid | None = None
    type: int = 0
    data: int = 0
    gpu_instance: int = _ANY_INSTANCE
    compute_instance: int = _ANY_INSTANCE
    ended: int | None = None
    """NVML's code for the end of the wait."""


OPENED = msgspec.json.Decoder(Answer[LibraryAnswer])
COUNTED = msgspec.json.Decoder(Answer[int])
GPU = msgspec.json.Decoder(Answer[Gpu])
SAMPLED = msgspec.json.Decoder(Answer[SampleAnswer])
PATHS = msgspec.json.Decoder(Answer[tuple[int | None, ...]])
FABRIC = msgspec.json.Decoder(Answer[Fabric])
WATCHED = msgspec.json.Decoder(Answer[None])
REPORT = msgspec.json.Decoder(Report)

_encoder = msgspec.json.Encoder()


def encode_request(request: Request) -> bytes:
    """The bytes for the worker."""
    return _encoder.encode(request)


def translate_failure(failure: Failure) -> DriverError:
    """The agent's error for a failure."""
    if failure.code == errors.VERSION_MISMATCH:
        return DriverMismatch(parse_library_version(failure.library_path), "")
    return DriverUnavailable("use NVML", failure.message)


def parse_library_version(path: str) -> str:
    """The driver version in a library's file name; empty without a version."""
    found = _VERSION_IN_NAME.search(path)
    return found[1] if found else ""


def render_event(report: Report) -> GpuEvent | None:
    """The event in the agent's vocabulary; `None` for an unregistered kind."""
    if report.gpu is None or report.type not in KINDS:
        return None
    if report.type != XID:
        return GpuEventReported(gpu=report.gpu, kind=KINDS[report.type], data=report.data)
    return XidReported(
        gpu=report.gpu,
        xid=report.data,
        gpu_instance_id=None if report.gpu_instance == _ANY_INSTANCE else report.gpu_instance,
        compute_instance_id=None if report.compute_instance == _ANY_INSTANCE else report.compute_instance,
    )
