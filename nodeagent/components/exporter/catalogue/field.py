"""A field: a DCGM name with type, help and one reading; pure.

Owns the vocabulary of the catalogue. Refuses to substitute: a field has the reading of its name, or no reading.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from nodeagent.components.exporter.exposition import MetricType
from nodeagent.components.exporter.series.rates import NO_RATES, Rates
from nodeagent.model.gpu import Gpu, MigDevice
from nodeagent.model.telemetry import GpuSample, MigSample, ProfilingSample

MIB = 1024 * 1024
Reading: TypeAlias = int | float | bool | None


@dataclass(frozen=True, slots=True)
class Entity:
    """One device of the exposition: a whole GPU, or one GPU instance of a GPU in MIG mode."""

    gpu: Gpu
    board: GpuSample
    """The whole GPU's sample, also on an instance: what exists per board is repeated there, as DCGM exporter does."""
    share: GpuSample | MigSample
    """What exists per instance: memory and counters; the board itself on a whole GPU."""
    rates: Rates = NO_RATES
    instance: MigDevice | None = None
    uuids: tuple[str, ...] = ()
    """Of everything a container may be given that is this device: the GPU, or the MIG devices of the instance."""

    @property
    def profiling(self) -> ProfilingSample | None:
        """Counter ratios of the share."""
        return self.share.profiling

    @property
    def gpu_instance_id(self) -> int | None:
        """The GPU instance of the entity."""
        return self.instance.gpu_instance_id if self.instance is not None else None


@dataclass(frozen=True, slots=True)
class Field:
    """One row of the catalogue."""

    name: str
    number: int
    """DCGM's field id; the order of the exposition."""
    type: MetricType
    help: str
    read: Callable[[Entity], Reading]
    decimals: bool = False
    """Written with six decimals, as DCGM exporter writes what is a double."""
    default: bool = False
    """On the default list."""
    readings: tuple[str, ...] = ()
    """What has to be sampled for it beside the ordinary; empty for what is sampled anyhow."""


def gauge(
    name: str,
    number: int,
    text: str,
    read: Callable[[Entity], Reading],
    *,
    decimals: bool = False,
    default: bool = False,
) -> Field:
    """A field with a value that rises and falls."""
    return Field(name, number, "gauge", text, read, decimals=decimals, default=default)


def counter(name: str, number: int, text: str, read: Callable[[Entity], Reading], *, default: bool = False) -> Field:
    """A field with a total that only rises."""
    return Field(name, number, "counter", text, read, default=default)


@dataclass(frozen=True, slots=True)
class LabelField:
    """A text that becomes a label of every GPU series."""

    name: str
    number: int
    help: str
    read: Callable[["Identity"], str]
    default: bool = False


@dataclass(frozen=True, slots=True)
class Identity:
    """The source of label fields."""

    gpu: Gpu
    driver_version: str = ""
    interface_version: str = ""
    cuda_version: tuple[int, int] | None = None


def to_mib(size_bytes: int | None) -> int | None:
    """Whole mebibytes, as DCGM counts memory."""
    return None if size_bytes is None else size_bytes // MIB


def to_watts(milliwatts: float | None) -> float | None:
    """Watts from the driver's milliwatts."""
    return None if milliwatts is None else milliwatts / 1000


def to_whole_watts(milliwatts: float | None) -> float | None:
    """A limit in whole watts, as a number with decimals."""
    return None if milliwatts is None else float(milliwatts // 1000)


def to_whole(value: float | None) -> int | None:
    """Rates are cut to whole numbers."""
    return None if value is None else int(value)
