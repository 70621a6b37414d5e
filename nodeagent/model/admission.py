"""What pods wait for when they are admitted, as counted since the agent began."""

from nodeagent.model.values import Value


class Distribution(Value, frozen=True):
    """How many values lie up to each bound and above the one before; last, those beyond all bounds."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float


class CallFacts(Value, frozen=True):
    """The answers to one question of the kubelet about one resource, with one outcome."""

    method: str
    resource: str
    outcome: str
    durations: Distribution


class AdmissionFacts(Value, frozen=True):
    """Answers to the kubelet, and the journal that is written before them."""

    calls: tuple[CallFacts, ...]
    journal_writes: int
    journal_failures: int
    journal_syncs: Distribution
