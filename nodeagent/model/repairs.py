"""Repairs: fault sessions of GPUs, their rungs on the ladder of repairs, their attempts, and what is planned."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import field

from nodeagent.model.gpu import ComputeMode
from nodeagent.model.ids import GpuUuid, PciAddress
from nodeagent.model.values import Value


class Rung(StrEnum):
    """A kind of repair, from the mildest to the last resort; `rank` orders the rungs."""

    DRAIN = "drain"
    """Pods leave the GPU, and the driver is asked again."""
    RESET = "reset"
    """A reset of the GPU's function."""
    BUS_RESET = "bus_reset"
    RELOAD_DRIVER = "reload_driver"
    REBOOT = "reboot"
    """A reboot of the node, which the agent requests and never does itself."""
    SERVICE = "service"
    """A person's work."""

    @property
    def rank(self) -> int:
        """The place on the ladder, from 1."""
        return _RANKS[self]

    @property
    def is_reset(self) -> bool:
        """Whether the rung resets every GPU of the domain, and counts for the guard of each."""
        return self in {Rung.RESET, Rung.BUS_RESET, Rung.RELOAD_DRIVER}


_RANKS = {rung: rank for rank, rung in enumerate(Rung, 1)}


class Outcome(StrEnum):
    """The end of an attempt."""

    PROVEN = "proven"
    """The proof found the GPUs well; an exit code alone is no proof."""
    FAILED = "failed"
    UNKNOWN = "unknown"
    """Nobody knows how the attempt ended; it counts as failed."""
    IN_USE = "in_use"
    """Refused because of a process with the GPU; it does not count as an attempt."""
    UNSUPPORTED = "unsupported"
    REFUSED = "refused"
    """Refused although no process has the GPU."""
    BROKEN = "broken"
    """The answer named what only service mends: a power cable, the InfoROM."""
    STOPPED = "stopped"
    """The agent's own fault, such as a missing permission; it does not count as an attempt."""
    INCOMPLETE = "incomplete"
    """Refused because further GPUs must be reset together with these; it does not count as an attempt."""

    @property
    def counts(self) -> bool:
        """Whether an attempt with this end uses up its rung and the guard."""
        return self not in {Outcome.IN_USE, Outcome.STOPPED, Outcome.INCOMPLETE}


class Ending(StrEnum):
    """Why a session was closed."""

    REPAIRED = "repaired"
    RECOVERED = "recovered"
    """The fault went without an attempt of the agent."""
    REMOVED = "removed"
    """The GPU is gone for good."""
    JOINED = "joined"
    """The faults belong to another session."""


class SessionGpu(Value, frozen=True):
    """A GPU of a session, as it was known when it came in."""

    uuid: GpuUuid
    board: str
    """The board's serial number, or the UUID without one: the guard counts by it, over boots and renumbering."""
    index: int
    address: PciAddress


class Evidence(Value, frozen=True):
    """A fault that asks for a repair."""

    gpu: GpuUuid
    key: str
    """As the verdicts name the fault: `xid-79`."""
    rung: Rung
    """Where the fault points on the ladder."""
    seen_seconds: float
    is_present: bool = False
    """Whether the newest poll found the fault, whatever the time of its first report."""


class ToolAnswer(Value, frozen=True):
    """How a command of a repair ended."""

    code: int | None
    """The exit code; `None` for a command that could not be started, or had no end within its deadline."""
    said: str = ""
    """The output of the command, or the reason for a missing exit code."""

    def describe(self) -> str:
        """The end in words."""
        said = " ".join(self.said.split())
        return said if self.code is None else f"exit code {self.code}: {said or 'no text'}"


class KeptSettings(Value, frozen=True):
    """The settings of a GPU before a reset, to be put back; `None` for what could not be read."""

    gpu: GpuUuid
    address: PciAddress
    index: int
    persistence_mode: bool | None = None
    power_limit_milliwatts: int | None = None
    compute_mode: ComputeMode | None = None
    """`None` for a GPU of an MPS daemon too, whose mode goes with the daemon."""
    application_clocks_mhz: tuple[int, int] | None = None
    mig_enabled: bool | None = None
    ecc_enabled: bool | None = None


class ReloadedDriver(Value, frozen=True):
    """The modules and services that a reload of the driver takes away and brings back."""

    services: tuple[str, ...] = ()
    """The running services that are stopped, in this order."""
    modules: tuple[str, ...] = ()
    """The loaded modules, in the order of their removal."""


class Attempt(Value, frozen=True):
    """An attempt at a repair; written without an outcome before the act, as its intent."""

    rung: Rung
    boards: tuple[str, ...]
    """The boards of all GPUs that the attempt hits."""
    boot: str
    began_seconds: float
    deadline_seconds: float
    outcome: Outcome | None = None
    ended_seconds: float | None = None
    detail: str = ""
    is_own: bool = True
    """False for a reboot of the node that the agent has not requested."""
    kept: tuple[KeptSettings, ...] = ()
    """The settings to put back after a reset, until they are back; they stand in the intent for the next agent."""
    driver: ReloadedDriver | None = None
    """`None` except for a reload of the driver; in the intent for the same reason."""

    @property
    def is_open(self) -> bool:
        """Whether the attempt is under way, or waits for its proof."""
        return self.outcome is None

    @property
    def counts(self) -> bool:
        """Whether the attempt uses up its rung; an intent does from the start."""
        return self.outcome is None or self.outcome.counts


class FaultSession(Value, frozen=True):
    """The faults of one or several GPUs repaired together, with the attempts."""

    number: int
    """0 before the session is in the journal."""
    gpus: tuple[SessionGpu, ...]
    cause: str
    """The fault that opened the session."""
    evidence: tuple[Evidence, ...]
    rung: Rung
    boot: str
    """The boot in which the session was opened or last taken up."""
    opened_seconds: float
    attempts: tuple[Attempt, ...] = ()
    ending: Ending | None = None
    closed_seconds: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether the session has not ended."""
        return self.ending is None

    @property
    def uuids(self) -> frozenset[GpuUuid]:
        """The UUIDs of the session's GPUs."""
        return frozenset(gpu.uuid for gpu in self.gpus)

    @property
    def under_way(self) -> Attempt | None:
        """The attempt without an outcome, if any: the last one."""
        return self.attempts[-1] if self.attempts and self.attempts[-1].is_open else None


class SessionPlan(Value, frozen=True):
    """The next act of a session, and what keeps it from being done."""

    session: int
    rung: Rung
    gpus: tuple[GpuUuid, ...]
    """All GPUs that the act hits, the healthy ones too."""
    pods: tuple[str, ...]
    """The pods that would have to leave, as `namespace/name`."""
    sentence: str
    obstacles: tuple[str, ...]
    """Why the act is not done now, each reason a sentence."""


class SlotUse(Value, frozen=True):
    """The slots of the node's domains."""

    allowed: Mapping[str, int] = field(default_factory=dict)
    """How many slots of each domain may be taken, as last read for a session that waits or acts; 0 for none."""
    refused: int = 0
    """Questions for slots that were refused or had no answer, since the agent started."""
    is_waiting: bool = False
    """Whether a session waits for slots."""


class RepairState(Value, frozen=True):
    """State: the sessions of the node with their plans; as it is without repairs switched on by default."""

    mode: str = "off"
    unsettled: str = ""
    """Why the findings do not count yet; empty once they have settled."""
    sessions: tuple[FaultSession, ...] = ()
    """The open ones first, then the closed ones that are still remembered, the newest first."""
    plans: tuple[SessionPlan, ...] = ()
    """For each open session."""
    with_driver: int = 0
    """The number of the session whose act has the driver now; 0 for none."""
    reasons: Mapping[GpuUuid, str] = field(default_factory=dict)
    """Why each GPU without an open session has none."""
    closed_gpus: Mapping[GpuUuid, str] = field(default_factory=dict)
    """The GPUs that are kept from new pods for a repair, each with the reason."""
    opened: int = 0
    """Sessions opened since the agent started."""
    closed: Mapping[Ending, int] = field(default_factory=dict)
    """Sessions closed since the agent started."""
    slots: SlotUse | None = None
    """`None` where a repair needs no slots."""
