"""The record of each GPU between polls and across restarts: open faults, returns, counters.

Records are written to the verdict file, so fields are only ever added, each with a default.
Times called `at` are seconds on the monotonic clock; `wall` times are for people alone and decide nothing.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import field

from nodeagent.model.health import ReturnRule, Verdict
from nodeagent.model.ids import DeviceUuid, GpuUuid, PciAddress
from nodeagent.model.remedies import Remedy
from nodeagent.model.values import Value

VERDICT_RANK: Final = {Verdict.HEALTHY: 0, Verdict.SUSPECT: 1, Verdict.UNKNOWN: 2, Verdict.UNHEALTHY: 3}
RULE_RANK: Final = {rule: rank for rank, rule in enumerate("NLWPRBS")}


def worse(left: Verdict, right: Verdict) -> Verdict:
    """The worse of two verdicts."""
    return max(left, right, key=VERDICT_RANK.__getitem__)


def stricter(left: ReturnRule, right: ReturnRule) -> ReturnRule:
    """The stricter of two return rules."""
    return max(left, right, key=RULE_RANK.__getitem__)


class Fault(Value, frozen=True):
    """A fault of a device that is not yet proven to be over."""

    key: str
    """What it is, the same for the same kind of fault: `xid-48`, `remap-failed`."""
    device: DeviceUuid
    """Whom it hits: a GPU with all that is cut from it, or one MIG device."""
    verdict: Verdict
    rule: ReturnRule
    remedy: Remedy
    reason: str
    since_wall: float
    last_at: float
    """When it was last seen."""
    last_wall: float = 0.0
    """Its newest report, or the first poll with it, by the wall clock: repairs are compared with it over boots."""
    quiet_seconds: float = 0.0
    xid: int | None = None
    count: int = 1
    is_level: bool = False
    """Found by polling, so that its absence can be seen; what an event reported is never seen to be absent."""
    is_present: bool = False
    """A level that was there at the newest look."""
    is_correctable: bool = True
    """Whether a driver that asks for no recovery is proof enough that a reset is not needed (any longer)."""
    reset_seen: bool = False
    power_cycle_seen: bool = False
    clean_looks: int = 0
    """PollSchedule in a row without anything of it."""
    none_looks: int = 0
    """Those of them in which the driver itself said that it wants no recovery action."""
    pids: tuple[int, ...] = ()
    """Who ran on the GPU when it was last seen."""


class Occurrences(Value, frozen=True):
    """The last few times of one XID on one device, each with the device's holder."""

    xid: int
    device: DeviceUuid
    times: tuple[float, ...] = ()
    holders: tuple[str, ...] = ()


class Return(Value, frozen=True):
    """A device came back from unhealthy."""

    device: DeviceUuid
    at: float


class Clearing(Value, frozen=True):
    """A person took the responsibility for a device."""

    wall: float
    who: str
    reason: str
    cleared: tuple[str, ...]
    """The keys of the faults that were taken away."""


class CounterWindow(Value, frozen=True):
    """A counter at the beginning of the minute under measurement."""

    at: float
    count: int


class LevelMemory(Value, frozen=True):
    """Memory of earlier polls, for judging the next."""

    uncorrected_baseline: int | None = None
    """Uncorrectable errors that a person or the driver has accepted; more than that is a fault."""
    uncorrected: int | None = None
    remap_pending: bool = False
    recovery_action: int | None = None
    links_expected: int = 0
    links_to: Mapping[PciAddress, int] = field(default_factory=dict)
    """The most links seen to each GPU that is linked directly: with that GPU in MIG mode they are off."""
    nvlink_recoveries: int | None = None
    nvlink_crc: int | None = None
    looked_at: float | None = None
    replays: CounterWindow | None = None
    corrected: CounterWindow | None = None
    storm_minutes: int = 0
    narrow_looks: int = 0
    throttled_minutes: tuple[bool, ...] = ()
    """The newest minutes, whether hardware slowed the GPU down in each."""
    throttled_minute_at: float | None = None
    throttled_since_at: float | None = None
    fabric_waiting_since_at: float | None = None
    slow_looks: int = 0
    """PollSchedule under load with a PCIe link that is slower than it can be."""
    nvlink_speed_expected: int = 0
    nvlink_recoveries_failed: int | None = None
    pcie_fatal: int | None = None
    aer: int | None = None
    retired_double_bit: CounterWindow | None = None
    """The pages retired for double-bit errors, and when they became so many."""


class GpuRecord(Value, frozen=True):
    """The record of one GPU."""

    gpu: GpuUuid
    faults: tuple[Fault, ...] = ()
    occurrences: tuple[Occurrences, ...] = ()
    returns: tuple[Return, ...] = ()
    accepted: tuple[str, ...] = ()
    """Levels for which only a person can clear the GPU, and did; forgotten when the level is gone."""
    clearings: tuple[Clearing, ...] = ()
    levels: LevelMemory = LevelMemory()
    proven_at: float | None = None
    """The newest complete look."""
    is_known: bool = False
    """Whether there was a complete look since the agent started, or one just before."""
    missed_looks: int = 0
    clean_streak: int = 0
    """Complete looks in a row."""
    driver_was_down: bool = False
    """The driver failed, and there were not yet enough complete looks since."""


class ReportedVerdict(Value, frozen=True):
    """The last published verdict of a device, and since when."""

    device: DeviceUuid
    verdict: Verdict
    since_wall: float


class StoredVerdicts(Value, frozen=True):
    """The content of the verdict file."""

    boot_id: str
    saved_at: float = 0.0
    records: tuple[GpuRecord, ...] = ()
    standings: tuple[ReportedVerdict, ...] = ()
    kernel_log_sequence: int | None = None
    """The last record of the kernel log that was taken in, in this boot."""
