"""Whom an event hits."""

import pytest

from nodeagent.components.health.evidence.findings import find_hit
from nodeagent.components.health.evidence.xids import Scope
from tests.support.gpus import gpu_uuid, make_gpu, mig_uuid

GPU = make_gpu(0, mig=["1g.10gb", "1g.10gb"])
"""Its devices have the GPU instances 7 and 8, each with the compute instance 0."""


@pytest.mark.parametrize(
    ("scope", "gpu_instance", "compute_instance", "hit"),
    [
        (Scope.INSTANCE, 7, 0, (mig_uuid(0, 0),)),
        (Scope.INSTANCE, 8, None, (mig_uuid(0, 1),)),
        (Scope.INSTANCE, None, None, (gpu_uuid(0),)),
        (Scope.INSTANCE, 9, 0, (gpu_uuid(0),)),
        (Scope.INSTANCE, 7, 3, (gpu_uuid(0),)),
        (Scope.GPU, 7, 0, (gpu_uuid(0),)),
    ],
)
def test_event_marks_exactly_what_it_hits(
    scope: Scope, gpu_instance: int | None, compute_instance: int | None, hit: tuple[str, ...]
) -> None:
    """An instance where it is named and exists; a GPU with all its devices otherwise."""
    assert find_hit(GPU, scope, gpu_instance, compute_instance) == hit
