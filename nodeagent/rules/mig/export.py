"""The present layout of GPUs, in the format of layout files: to have the same layout elsewhere.

Owns the grouping of GPUs into entries. Refuses to write YAML: the printer's business.
"""

from collections.abc import Sequence
from typing import Any

from nodeagent.model.gpu import Gpu
from nodeagent.rules.mig.layouts import VERSION, DeviceFilter, Layout, LayoutRule
from nodeagent.rules.mig.partitions import list_profile_names, read_partitions


def export_layout(gpus: Sequence[Gpu]) -> Layout:
    """An entry for all GPUs of a model with the same partitions; GPUs without MIG support are left out.

    An instance without a device cannot be expressed in this format, and is left out.
    """
    ordered = sorted(gpus, key=lambda gpu: gpu.index)
    groups: dict[tuple[int, bool, tuple[tuple[str, int], ...]], list[int]] = {}
    for gpu in ordered:
        if gpu.mig is not None:
            counts = list_profile_names(read_partitions(gpu))
            groups.setdefault((gpu.pci.device_id, gpu.mig_enabled, tuple(sorted(counts.items()))), []).append(gpu.index)
    is_mixed = len({gpu.pci.device_id for gpu in gpus}) > 1
    return tuple(
        LayoutRule(
            enabled=enabled,
            indexes=None if len(indexes) == len(ordered) else tuple(indexes),
            filters=(DeviceFilter(device_id=device_id),) if is_mixed else (),
            profiles=dict(profiles),
        )
        for (device_id, enabled, profiles), indexes in groups.items()
    )


def render_file(name: str, layout: Layout) -> dict[str, Any]:
    """A file with this one layout, as plain values."""
    return {"version": VERSION, "mig-configs": {name: [_render_part(part) for part in layout]}}


def _render_part(part: LayoutRule) -> dict[str, Any]:
    filters = [f"0x{one.device_id:08X}" for one in part.filters]
    return {
        **({"device-filter": filters} if filters else {}),
        "devices": "all" if part.indexes is None else list(part.indexes),
        "mig-enabled": part.enabled,
        "mig-devices": dict(part.profiles),
    }
