"""Names that hardware is born with: made up, but the same for the same node for ever.

Refuses randomness: two agents that simulate the same node agree on every UUID.
"""

import hashlib

from nodeagent.model.ids import GpuUuid, MigUuid


def make_gpu_uuid(profile: str, node_name: str, index: int) -> GpuUuid:
    """The UUID of the GPU in this slot of this node."""
    return GpuUuid(f"GPU-{_make_uuid('gpu', profile, node_name, index)}")


def make_mig_uuid(gpu: GpuUuid, gpu_instance_id: int, compute_instance_id: int, layout: int) -> MigUuid:
    """The UUID of a MIG device; a new layout gives new UUIDs, as for a re-created instance."""
    return MigUuid(f"MIG-{_make_uuid('mig', gpu, gpu_instance_id, compute_instance_id, layout)}")


def make_serial(gpu: GpuUuid) -> str:
    """A board serial number of the usual thirteen digits."""
    return f"1{int(_digest('serial', gpu)[:15], 16) % 10**12:012d}"


def make_seed(*parts: object) -> int:
    """A seed for a generator of the given things alone."""
    return int(_digest("seed", *parts)[:16], 16)


def _make_uuid(*parts: object) -> str:
    text = _digest(*parts)
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"


def _digest(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()
