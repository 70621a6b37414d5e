"""Fields beside the ordinary sample: read only while a list of fields asks for such a field.

Each field names a reading of the NVML worker: `field/76/0` is NVML's field 76 of the GPU (or of a link, with the link's
number in last place), `gpm/9` a hardware counter, `call/…` a separate call.
"""

from collections.abc import Callable
from functools import partial

from nodeagent.components.exporter.catalogue.field import MIB, Entity, Field, Reading
from nodeagent.components.exporter.exposition import MetricType


def ratio(percent: float) -> float:
    """A ratio from a percentage."""
    return percent / 100


def to_bytes(mib: float) -> int:
    """Bytes from mebibytes."""
    return int(mib * MIB)


def _read(entity: Entity, *, reading: str, convert: Callable[[float], Reading]) -> Reading:
    value = entity.board.extras.get(reading)
    return None if value is None else convert(value)


def _read_whole_gpu(entity: Entity, *, reading: str, convert: Callable[[float], Reading]) -> Reading:
    """The reading of a whole GPU; `None` for a GPU instance."""
    return None if entity.instance is not None else _read(entity, reading=reading, convert=convert)


def read_rate(entity: Entity, *, readings: tuple[str, ...]) -> Reading:
    """Totals of a link as DCGM's bandwidth: KiB a second over a thousand, cut; both totals or no value."""
    rates = [entity.rates.extras.get(reading) for reading in readings]
    return None if None in rates else int(sum(rate for rate in rates if rate is not None) / 1000)


def make_field(
    name: str,
    number: int,
    kind: MetricType,
    text: str,
    reading: str,
    convert: Callable[[float], Reading] = int,
    *,
    decimals: bool = False,
    own: bool = False,
) -> Field:
    """One field of one reading; `own` is for a reading that each MIG device has separately."""
    read = partial(_read_whole_gpu if own else _read, reading=reading, convert=convert)
    return Field(f"DCGM_FI_{name}", number, kind, text, read, decimals=decimals, readings=(reading,))
