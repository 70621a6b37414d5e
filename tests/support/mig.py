"""GPUs of simulated models, whole or cut, as the planning of MIG layouts sees them."""

from functools import cache

from msgspec.structs import replace

from nodeagent.edge.simulated.hardware import GpuModel
from nodeagent.edge.simulated.mig_geometry import GEOMETRIES, list_shapes
from nodeagent.edge.simulated.profile import load_model
from nodeagent.model.gpu import Gpu, Mig, MigProfile
from tests.support.gpus import make_gpu

MIG_MODELS = (
    "a30",
    "a100-sxm4-40gb",
    "a100-sxm4-80gb",
    "h100-sxm5-80gb",
    "h100-nvl-94gb",
    "h100-96gb",
    "h200-sxm5-141gb",
    "b200",
    "gb200",
    "rtx-pro-6000-server",
)
"""Those whose rules of placement differ, or whose profiles are called otherwise."""


@cache
def find_model(name: str) -> GpuModel:
    return load_model(name)


@cache
def list_profiles(name: str, *, with_placements: bool = True) -> tuple[MigProfile, ...]:
    """What the driver says of the model's profiles; where they fit it says only while MIG is on."""
    return tuple(
        MigProfile(
            name=one.name,
            profile_id=one.shape.profile_id,
            slice_count=one.shape.slices,
            memory_mib=one.row.memory_mib,
            multiprocessor_count=one.row.multiprocessors,
            instances_max=one.shape.instances,
            placements=one.shape.starts if with_placements else (),
            placement_size=one.shape.size if with_placements else 1,
        )
        for one in list_shapes(find_model(name))
    )


def make_mig_gpu(index: int, model: str, *, enabled: bool = False) -> Gpu:
    """A GPU of a simulated model, not cut."""
    found = find_model(model)
    gpu = make_gpu(index, name=found.name)
    mig = None
    if found.mig is not None:
        profiles = list_profiles(model, with_placements=enabled)
        slices = GEOMETRIES[found.mig.geometry].slices
        mig = Mig(enabled=enabled, pending=enabled, profiles=profiles, devices_max=slices)
    pci = replace(gpu.pci, device_id=found.pci.device_id)
    return replace(gpu, pci=pci, mig=mig, memory_total_bytes=found.total_bytes)
