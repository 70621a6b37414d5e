"""The proof of a GPU: stages, what a stage asks of the prover, what the prover read, and the verdict on all of it."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import field

from nodeagent.model.ids import GpuUuid
from nodeagent.model.values import Value


class ProofStage(StrEnum):
    """How thoroughly a GPU is proven; each stage has the checks of the stages before."""

    INSTANT = "instant"
    """The driver's readings alone, without a context on the GPU."""
    QUICK = "quick"
    PROOF = "proof"
    SOAK = "soak"


class ProofVerdict(StrEnum):
    """The verdict on a GPU or on a check; only `FAILED` is a reason to take a GPU away."""

    PASSED = "passed"
    FAILED = "failed"
    UNTESTED = "could not test"


class SpeedKind(StrEnum):
    """A speed that is compared with other GPUs of the node."""

    MEMORY = "memory"
    TO_GPU = "to GPU"
    FROM_GPU = "from GPU"
    PEER = "to peer"
    CLOCK = "SM clock"


class ProofPlan(Value, frozen=True):
    """The work of a stage, as the prover is asked for it."""

    turns: int
    """The steps of a thread in a round of the checksum."""
    rounds: int
    all_memory: bool = False
    """Whether all free memory gets patterns, too."""
    with_peers: bool = False
    repeat_seconds: float = 0.0
    """For how long patterns and checksums are repeated; 0 for once."""
    deadline_seconds: float = 30.0
    """How long the prover may take for one step before its process is killed."""
    seed: int = 1


class ProverOrder(Value, frozen=True):
    """What the prover is asked."""

    library: str
    gpu: str
    plan: ProofPlan
    peers: tuple[str, ...] = ()
    """UUIDs of idle GPUs to copy to."""


class PatternPass(Value, frozen=True):
    """A pattern written by the GPU and compared by the GPU, after a copy or without one."""

    where: str
    """`memory`, `copies`, or `peer UUID`."""
    size_bytes: int
    seed: int
    mask: int
    """XORed into each word."""
    wrong: int = 0
    """Words of eight bytes that differ from the pattern."""
    first: int = 0
    """The index of the first wrong word."""
    address: int = 0
    """The address of the first wrong word in the prover's process."""
    found: int = 0
    """The first wrong word, read once more."""


class Speed(Value, frozen=True):
    """A speed, measured several times: GB/s, or MHz for a clock."""

    kind: SpeedKind
    values: tuple[float, ...]
    peer: str = ""
    """The UUID of the other GPU of a copy between GPUs."""


class SmSum(Value, frozen=True):
    """What a streaming multiprocessor (SM) computed; the blocks of an SM with equal sums are one entry."""

    sm: int
    plain: int
    weighted: int
    tensor: int


class ProverReadings(Value, frozen=True):
    """What the prover read until it was done or stopped."""

    patterns: tuple[PatternPass, ...] = ()
    speeds: tuple[Speed, ...] = ()
    sums: tuple[SmSum, ...] = ()
    multiprocessors: int = 0
    unreached: tuple[str, ...] = ()
    """Peers that could not be used, each with the reason."""
    memory_nominal_gbps: float = 0.0
    """Memory clock times bus width; 0 while unknown."""
    clock_max_mhz: float = 0.0
    seconds: float = 0.0
    call: str = ""
    """The call of the CUDA driver interface that failed; empty without failure."""
    code: int = 0
    """The error of the failed call."""
    stopped: str = ""
    """Why the prover stopped before its end, in words; empty if it came to the end."""
    hung: bool = False
    """Whether the prover did not return from a call and was killed."""
    left_behind: bool = False
    """Whether the prover could not even be killed: it sleeps in the driver."""


class ProofCheck(Value, frozen=True):
    """A check of a proof."""

    name: str
    verdict: ProofVerdict
    measured: str
    expected: str = ""


class GpuProof(Value, frozen=True):
    """The outcome for one GPU."""

    gpu: GpuUuid
    index: int
    model: str
    stage: ProofStage
    checks: tuple[ProofCheck, ...] = ()
    notes: tuple[str, ...] = ()
    readings: ProverReadings | None = None
    """`None` for a GPU on which the prover did not run."""

    @property
    def verdict(self) -> ProofVerdict:
        """Failed if any check failed; passed if every check passed."""
        verdicts = {check.verdict for check in self.checks}
        for verdict in (ProofVerdict.FAILED, ProofVerdict.UNTESTED):
            if verdict in verdicts:
                return verdict
        return ProofVerdict.PASSED if verdicts else ProofVerdict.UNTESTED


PROOF_ANNOTATION: Final = "nodeagent.io/gpu-proofs"
BINDING_CONDITION: Final = "nodeagent.io/proven"
"""The condition of an allocated device for which the scheduler waits before the pod is bound."""
BINDING_FAILURE: Final = "nodeagent.io/proof-failed"
"""The condition of an allocated device by which the scheduler chooses devices anew."""
PROOF_FAILED: Final = "proof_failed"
"""The kind of the event about a GPU that a proof has found to work wrongly."""
GIVEN_UP: Final = "given up"
"""The end of a proof whose GPU was wanted by somebody else, beside the verdicts."""
SPEEDS_KEPT: Final = 3
"""Proofs whose speeds are remembered."""
_SLOW_LEAST: Final = 2


class ProofRecord(Value, frozen=True):
    """The newest proof of a GPU by the agent itself, and the newest proof that the GPU passed."""

    verdict: ProofVerdict
    ended_seconds: float
    took_seconds: float
    reason: str = ""
    """Why the GPU did not pass; empty for a GPU that passed."""
    is_given_up: bool = False
    """Whether the proof was given up for a pod or a change of the node: no word about the GPU."""
    level: ProofStage | None = None
    """The stage passed last; `None` like the time where `newest_pass` is."""
    proven_seconds: float | None = None
    speeds: tuple[Speed, ...] = ()
    """Of the newest proof that measured any."""
    slow: tuple[str, ...] = ()
    """The slow speeds of each of the newest proofs that measured any; empty for a fast GPU."""

    @property
    def newest_pass(self) -> tuple[ProofStage, float] | None:
        """The stage passed last, and the time; `None` for a GPU that never passed, or has failed since."""
        return None if self.level is None or self.proven_seconds is None else (self.level, self.proven_seconds)

    @property
    def is_slow(self) -> bool:
        """Whether two of the newest three proofs found the GPU slow: one bad value is no verdict."""
        return sum(map(bool, self.slow)) >= _SLOW_LEAST


class GpuProofs(Value, frozen=True):
    """State: the proofs of the node's GPUs by the agent itself; absent where no GPU is proven."""

    gpus: Mapping[GpuUuid, ProofRecord] = field(default_factory=dict)
    proving: GpuUuid | None = None
    """The GPU that is proven now."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Proofs since the agent started: by verdict, and `given up`."""
    is_before_binding: bool | None = None
    """Whether pods may wait for a proof of their GPUs: the agent hears of such pods, and may end the wait.

    `None` while unknown, and where no proof is asked for before binding.
    """
