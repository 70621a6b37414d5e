"""The shapes of GPU instances, and their placements: the driver's decisions when a GPU is partitioned.

Owns names, NVML numbers, placements and the driver's order of choice.
Refuses to know a model's memory and SM counts: the model brings them, as `MigRow`.
"""

import math
from collections import Counter

from msgspec import Struct

from nodeagent_sim.gpus.hardware import MIB, GpuModel, MigRow


class Shape(Struct, frozen=True):
    """One shape of a geometry, in NVML's numbers."""

    enumerator: int
    """The index that NVML's profile queries take."""
    profile_id: int
    """The id that the queries return, and that the creation of an instance takes."""
    slices: int
    starts: tuple[int, ...]
    size: int
    """Size of a placement, in memory slots."""
    instances: int
    suffix: str = ""


class Geometry(Struct, frozen=True):
    """Slots, slices and shapes of one family of GPUs."""

    slots: int
    slices: int
    shapes: dict[str, Shape]


class MigShape(Struct, frozen=True):
    """A shape on one model: the name for people, with all of NVML's numbers."""

    name: str
    shape: Shape
    row: MigRow


class PlacedInstance(Struct, frozen=True):
    """One GPU instance, filled by one compute instance."""

    shape: MigShape
    start: int
    gpu_instance_id: int


GEOMETRIES: dict[str, Geometry] = {
    "seven-slice": Geometry(
        slots=8,
        slices=7,
        shapes={
            "1g": Shape(0, 19, 1, (0, 1, 2, 3, 4, 5, 6), 1, 7),
            "1g+me": Shape(7, 20, 1, (0, 1, 2, 3, 4, 5, 6), 1, 1, "+me"),
            "1g-double": Shape(9, 15, 1, (0, 2, 4, 6), 2, 4),
            "2g": Shape(1, 14, 2, (0, 2, 4), 2, 3),
            "3g": Shape(2, 9, 3, (0, 4), 4, 2),
            "4g": Shape(3, 5, 4, (0,), 4, 1),
            "7g": Shape(4, 0, 7, (0,), 8, 1),
        },
    ),
    "four-slice-ampere": Geometry(
        slots=4,
        slices=4,
        shapes={
            "1g": Shape(0, 14, 1, (0, 1, 2, 3), 1, 4),
            "1g+me": Shape(7, 21, 1, (0, 1, 2, 3), 1, 1, "+me"),
            "2g": Shape(1, 5, 2, (0, 2), 2, 2),
            "2g+me": Shape(8, 6, 2, (0, 2), 2, 1, "+me"),
            "4g": Shape(3, 0, 4, (0,), 4, 1),
        },
    ),
    "four-slice": Geometry(
        slots=12,
        slices=4,
        shapes={
            "1g": Shape(0, 14, 1, (0, 3, 6, 9), 3, 4),
            "1g+me": Shape(7, 21, 1, (0, 3, 6, 9), 3, 1, "+me"),
            "1g+gfx": Shape(10, 47, 1, (0, 3, 6, 9), 3, 4, "+gfx"),
            "1g+me.all": Shape(15, 65, 1, (0, 3, 6, 9), 3, 1, "+me.all"),
            "1g-me": Shape(13, 67, 1, (0, 3, 6, 9), 3, 4, "-me"),
            "2g": Shape(1, 5, 2, (0, 6), 6, 2),
            "2g+gfx": Shape(11, 35, 2, (0, 6), 6, 2, "+gfx"),
            "2g+me.all": Shape(16, 64, 2, (0, 6), 6, 1, "+me.all"),
            "2g-me": Shape(14, 66, 2, (0, 6), 6, 2, "-me"),
            "4g": Shape(3, 0, 4, (0,), 12, 1),
            "4g+gfx": Shape(12, 32, 4, (0,), 12, 1, "+gfx"),
        },
    ),
}


def compute_memory_eighths(memory_mib: int, total_bytes: int) -> int:
    """The gigabytes in a profile's name: eighths rounded up, of the whole rounded up, halves away from zero."""
    eighths = math.ceil(8 * memory_mib * MIB / total_bytes)
    return math.floor(eighths * math.ceil(total_bytes / 2**30) / 8 + 0.5)


def list_shapes(model: GpuModel) -> tuple[MigShape, ...]:
    """Every shape of the model, in the order of the geometry; empty for a model without MIG."""
    if model.mig is None:
        return ()
    return tuple(
        MigShape(
            name=_render_name(shape, model.mig.shapes[key], model.total_bytes), shape=shape, row=model.mig.shapes[key]
        )
        for key, shape in GEOMETRIES[model.mig.geometry].shapes.items()
    )


def plan_layout(model: GpuModel, names: tuple[str, ...]) -> tuple[PlacedInstance, ...]:
    """Place the named instances, large instances first, as a careful administrator would create them.

    Raises:
        ValueError: A name is unknown, or the set does not fit; the message says why.
    """
    if model.mig is None:
        raise ValueError(f"{model.name} knows no MIG")
    known = {shape.name: shape for shape in list_shapes(model)}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"{model.name} has no MIG profile {unknown[0]!r}: choose from {', '.join(known)}")
    geometry = GEOMETRIES[model.mig.geometry]
    wanted = sorted((known[name] for name in names), key=lambda shape: (-shape.shape.slices, -shape.shape.size))
    counts = Counter(shape.name for shape in wanted)
    fits = sum(shape.shape.slices for shape in wanted) <= geometry.slices and all(
        counts[shape.name] <= shape.shape.instances for shape in wanted
    )
    placed = _place(wanted, frozenset(), geometry) if fits else None
    if placed is None:
        raise ValueError(f"{' + '.join(names)} does not fit on one {model.name}")
    return placed


def _render_name(shape: Shape, row: MigRow, total_bytes: int) -> str:
    return f"{shape.slices}g.{compute_memory_eighths(row.memory_mib, total_bytes)}gb{shape.suffix}"


def _place(wanted: list[MigShape], taken: frozenset[int], geometry: Geometry) -> tuple[PlacedInstance, ...] | None:
    """The first arrangement in the driver's order of preference; at most a few dozen steps on any geometry."""
    if not wanted:
        return ()
    first, rest = wanted[0], wanted[1:]
    for start in _order_starts(first.shape):
        slots = frozenset(range(start, start + first.shape.size))
        if slots & taken:
            continue
        others = _place(rest, taken | slots, geometry)
        if others is not None:
            identity = geometry.slots // first.shape.size - 1 + start // first.shape.size
            return (PlacedInstance(shape=first, start=start, gpu_instance_id=identity), *others)
    return None


def _order_starts(shape: Shape) -> tuple[int, ...]:
    """The driver fills single slices from the front and wider instances from the back."""
    return shape.starts if shape.slices == 1 else tuple(reversed(shape.starts))
