"""Allocation modes with cordons, for tests."""

from typing import Any

from nodeagent.model.cordons import Cordon, CordonSource
from nodeagent.model.offering import AllocationMode, GpuAllocationMode
from tests.support.samples import make_address, make_uuid


def make_cordon(index: int = 0, **changes: Any) -> Cordon:
    """A person's cordon."""
    plain: dict[str, Any] = {"source": CordonSource.COMMAND, "named": str(index), "reason": "fan"}
    return Cordon(gpu=make_uuid(index), **(plain | changes))


def make_brake(index: int = 0, **changes: Any) -> Cordon:
    """The brake's cordon, in the first closing."""
    plain = {"source": CordonSource.BRAKE, "reason": "3 starts were lost", "since_seconds": 700.0, "closings": 1}
    return make_cordon(index, **(plain | changes))


def make_mode(index: int = 0, *cordons: Cordon, **changes: Any) -> GpuAllocationMode:
    """A whole GPU with these cordons, open without any."""
    plain: dict[str, Any] = {
        "door": AllocationMode.WHOLE,
        "wanted": AllocationMode.WHOLE,
        "reason": "the default",
        "is_open": not cordons,
        "cordons": cordons,
    }
    return GpuAllocationMode(gpu=make_uuid(index), index=index, address=make_address(index), **(plain | changes))
