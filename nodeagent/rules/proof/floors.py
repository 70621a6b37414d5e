"""The least speeds of known models, and whether a floor can be true.

Owns the table, and the format of a file of further floors. A floor is used only if it is plausible for the GPU at hand:
published tables have had values in wrong units, which would fail every GPU or none.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, assert_never

import msgspec

from nodeagent.model.gpu import Gpu
from nodeagent.model.proof import ProverReadings, SpeedKind
from nodeagent.model.values import Value

PLAUSIBLE: Final = (0.4, 0.9)
"""The part of the nominal speed that a floor may be."""
SHARE: Final = 0.75
"""The part of a measured speed that makes a floor."""
_LANE_GBPS: Final = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""By generation of PCIe."""


class Floors(Value, frozen=True, rename="kebab", forbid_unknown_fields=True):
    """The least speeds of a model in GB/s; `None` for a speed without a floor."""

    memory: float | None = None
    to_gpu: float | None = None
    from_gpu: float | None = None
    to_peer: float | None = None

    def find(self, kind: SpeedKind) -> float | None:
        """The floor of a kind of speed; clocks have none."""
        return {
            SpeedKind.MEMORY: self.memory,
            SpeedKind.TO_GPU: self.to_gpu,
            SpeedKind.FROM_GPU: self.from_gpu,
            SpeedKind.PEER: self.to_peer,
        }.get(kind)


FloorTable = Mapping[str, Floors]
"""By the model's name, in which `*` stands for any characters; the first name that fits counts."""


def _over_pcie(gbps: float, memory: float | None = None, to_peer: float | None = None) -> Floors:
    return Floors(memory=memory, to_gpu=gbps, from_gpu=gbps, to_peer=to_peer)


FLOORS: Final[FloorTable] = {
    "NVIDIA A100-SXM*80GB": _over_pcie(21, 1173, 238),
    "NVIDIA A100*80GB*PCIe": _over_pcie(21, 970),
    "NVIDIA A30": Floors(memory=585),
    "NVIDIA A10G": Floors(memory=363),
    "NVIDIA L4": Floors(memory=198),
    "NVIDIA L40S": Floors(memory=525),
    "NVIDIA H100 80GB HBM3": _over_pcie(48, 1905, 335),
    "NVIDIA H100 NVL": _over_pcie(48, 2043),
    "NVIDIA H200 NVL": _over_pcie(48, 2212),
    "NVIDIA H200": _over_pcie(48, None, 335),
    "NVIDIA B200*": Floors(memory=4073),
    "NVIDIA B300*": Floors(memory=4623),
    "NVIDIA GB300*": Floors(memory=4523),
}


class FloorsUnreadable(ValueError):
    """A file of floors has another form; the message names the key."""


def parse_floors(document: Any) -> FloorTable:
    """The table of a file, the names of models before their floors.

    Raises:
        FloorsUnreadable: The document is no such table.
    """
    try:
        table = msgspec.convert(document or {}, dict[str, Floors])
    except msgspec.ValidationError as error:
        keys = ", ".join(Floors.__struct_encode_fields__)
        raise FloorsUnreadable(f"{error}; a model has {keys}, in GB/s") from error
    for model, floors in table.items():
        for key, floor in msgspec.to_builtins(floors).items():
            if floor is not None and floor <= 0:
                raise FloorsUnreadable(f"{model}: {key} {floor:g} is no speed; leave the key out for no floor")
    return table


def find_floors(model: str, tables: Sequence[FloorTable]) -> Floors:
    """The floors of a model; the first table that knows the model counts."""
    for table in tables:
        for name, floors in table.items():
            if fnmatchcase(model, name):
                return floors
    return Floors()


def derive_floors(speeds: Mapping[SpeedKind, float]) -> Floors:
    """Floors for a model from the speeds of a sound GPU."""
    found = {kind: round(SHARE * speed, 1) for kind, speed in speeds.items()}
    return Floors(
        memory=found.get(SpeedKind.MEMORY),
        to_gpu=found.get(SpeedKind.TO_GPU),
        from_gpu=found.get(SpeedKind.FROM_GPU),
        to_peer=found.get(SpeedKind.PEER),
    )


def find_nominal(kind: SpeedKind, gpu: Gpu, readings: ProverReadings) -> float:
    """The speed of the hardware by its data sheet, in GB/s; 0 while unknown."""
    match kind:
        case SpeedKind.MEMORY:
            return readings.memory_nominal_gbps
        case SpeedKind.TO_GPU | SpeedKind.FROM_GPU:
            return _LANE_GBPS.get(gpu.pci.link_generation_max or 0, 0.0) * (gpu.pci.link_width_max or 0)
        case SpeedKind.PEER:
            return sum(link.speed_mbps or 0 for link in gpu.nvlinks if link.active) / 1e3
        case SpeedKind.CLOCK:
            return 0.0
        case _:
            assert_never(kind)


def is_plausible(floor: float, nominal: float) -> bool:
    """Whether a floor can be true for hardware of this nominal speed."""
    least, most = PLAUSIBLE
    return nominal > 0 and least <= floor / nominal <= most
