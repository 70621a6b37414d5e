"""The proof of a GPU: stages, what a stage asks of the prover, what the prover read, and the verdict on all of it."""

from enum import StrEnum

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
    """One thing that was looked at."""

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
