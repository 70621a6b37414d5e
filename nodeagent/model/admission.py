"""How long pods waited at admission, counted since the agent's start."""

from nodeagent.model.values import Value


class Distribution(Value, frozen=True):
    """How many values lie between each bound and the bound before; the last count is of values beyond all bounds."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float


class CallFacts(Value, frozen=True):
    """Answers to a single method of the kubelet for a single resource, by outcome."""

    method: str
    resource: str
    outcome: str
    durations: Distribution


class AdmissionFacts(Value, frozen=True):
    """Answers to the kubelet, and the journal writes before the answers."""

    calls: tuple[CallFacts, ...]
    journal_writes: int
    journal_failures: int
    journal_syncs: Distribution
