"""The records under each path: the newest state of a component, or a record of several."""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from nodeagent.components.web.api.claims import record_claims
from nodeagent.components.web.api.fractions import record_fractions
from nodeagent.components.web.api.records import GpusRecord, StateRecord
from nodeagent.core.values import ActiveCondition
from nodeagent.model.allocation import ClaimTable
from nodeagent.model.claims import ClaimStanding, ReadyClaims
from nodeagent.model.fractions import FractionDecisions
from nodeagent.model.journal import FractionTable
from nodeagent.model.mig import MigState
from nodeagent.model.mps import MpsState
from nodeagent.model.offering import Offering
from nodeagent.model.proof import GpuProofs
from nodeagent.model.repairs import RepairState
from nodeagent.model.upgrades import UpgradeState
from nodeagent.model.usage import FractionUsage

V = TypeVar("V")


class ReadLatest(Protocol):
    """The newest value of a state; `None` before the first."""

    def __call__(self, kind: type[V], /) -> V | None:
        """Look up the newest value."""
        ...


def list_records(
    read: ReadLatest, state: Callable[[], StateRecord], list_active: Callable[[], Iterable[ActiveCondition]]
) -> dict[str, Callable[[], object]]:
    """The function behind each path; called anew for every request."""

    def record_ready_claims() -> object:
        return record_claims(read(ReadyClaims), read(ClaimTable), read(ClaimStanding), list_active())

    return {
        "/api/v1/state": state,
        "/api/v1/gpus": lambda: state().gpus or GpusRecord(generation=0),
        "/api/v1/allocations": lambda: state().allocations,
        "/api/v1/parts": lambda: record_fractions(read(FractionTable), read(FractionDecisions), read(FractionUsage)),
        "/api/v1/claims": record_ready_claims,
        "/api/v1/usage": lambda: read(FractionUsage) or FractionUsage(),
        "/api/v1/doors": lambda: (read(Offering) or Offering()).doors,
        "/api/v1/mig": lambda: read(MigState) or MigState(),
        "/api/v1/mps": lambda: read(MpsState) or MpsState(),
        "/api/v1/repairs": lambda: read(RepairState) or RepairState(),
        "/api/v1/upgrades": lambda: read(UpgradeState) or UpgradeState(),
        "/api/v1/proofs": lambda: read(GpuProofs) or GpuProofs(),
        "/api/v1/devices": lambda: state().devices,
        "/api/v1/labels": lambda: state().labels,
        "/api/v1/conditions": lambda: state().conditions,
        "/api/v1/components": lambda: state().components,
        "/api/v1/gates": lambda: state().gates,
        "/api/v1/driver": lambda: state().driver,
    }
