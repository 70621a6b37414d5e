"""Upgrades of the driver: phases, paused programs, endings."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import field

from nodeagent.model.ids import GpuUuid
from nodeagent.model.repairs import SessionGpu
from nodeagent.model.values import Value

UPGRADE_LABEL: Final = "nodeagent.io/driver-upgrade"
"""With the value `pause` a person stops an upgrade where it is, with `off` a person forbids upgrades of the node."""
INSTALLED: Final = "installed"
"""The wanted version that stands for the version of the installed packages."""


class UpgradePhase(StrEnum):
    """A part of an upgrade, in order; `rank` orders the phases."""

    DRAIN = "drain"
    """All GPUs of the node are closed to new pods, and pods leave."""
    PAUSE = "pause"
    """Other programs with the driver open are paused, until nobody has a GPU."""
    UNLOAD = "unload"
    """The agent lets go of the driver, and the kernel modules leave."""
    INSTALL = "install"
    """No kernel module is loaded; the new driver comes."""
    RESTORE = "restore"
    """The driver is taken back and proven, and whoever was paused comes back."""

    @property
    def rank(self) -> int:
        """The place in the order, from 0."""
        return tuple(UpgradePhase).index(self)


class UpgradeEnding(StrEnum):
    """How an upgrade ended."""

    DONE = "done"
    """The wanted version is loaded, works and was proven."""
    FAILED = "failed"
    ABORTED = "aborted"


class PutAside(Value, frozen=True):
    """Programs with the driver open that were paused for an upgrade; kept before each pause, for the way back."""

    labels: Mapping[str, str] = field(default_factory=dict)
    """The former value of each paused label of the node."""
    services: tuple[str, ...] = ()
    """The services of the host that were stopped."""
    modules: tuple[str, ...] = ()
    """The kernel modules that were loaded, in the order of their loading."""
    driver_pods: tuple[str, ...] = ()
    """The pods that brought the old driver and leave with the driver, as `namespace/name`."""


class DriverUpgrade(Value, frozen=True):
    """An upgrade of the node's driver, from beginning to end."""

    number: int
    """0 before the upgrade is in the journal."""
    before: str
    """The version of the loaded module at the beginning."""
    wanted: str
    gpus: tuple[SessionGpu, ...]
    """All GPUs of the node at the beginning."""
    boot: str
    began_seconds: float
    """The beginning of the drain, or of the wait for slots while no slot was taken yet."""
    phase_seconds: float
    """The beginning of the present phase."""
    phase: UpgradePhase = UpgradePhase.DRAIN
    put_aside: PutAside = field(default_factory=PutAside)
    paused_by: str = ""
    """The person who holds the upgrade where it is."""
    aborted_by: str = ""
    failure: str = ""
    """Why the wanted version does not come; the driver that is there is taken back then."""
    ending: UpgradeEnding | None = None
    ended_seconds: float | None = None
    may_repeat: bool = False
    """Whether a person allows another upgrade to the same version after one that has not ended well."""

    @property
    def is_open(self) -> bool:
        """Whether the upgrade has not ended."""
        return self.ending is None

    @property
    def is_failing(self) -> bool:
        """Whether the upgrade is on its way back."""
        return bool(self.aborted_by or self.failure)

    @property
    def why_not_done(self) -> str:
        """Why the upgrade was given up, in words; empty for a sound one."""
        return f"aborted by {self.aborted_by}" if self.aborted_by else self.failure


class UpgradeState(Value, frozen=True):
    """State: the driver's upgrades, and what would be done next."""

    mode: str = "off"
    loaded: str = ""
    """The version of the loaded kernel module; empty without one."""
    installed: str = ""
    """The version of the installed library; empty where the library's name has none."""
    wanted: str = ""
    """Empty where no version is wanted."""
    sentence: str = "upgrades of the driver are off"
    """The upgrade under way, or the one that is due, as a sentence."""
    obstacles: tuple[str, ...] = ()
    """Why the next step is not taken now, each reason a sentence."""
    pods: tuple[str, ...] = ()
    """The pods that have to leave, as `namespace/name`."""
    budgets: tuple[str, ...] = ()
    """The pods that a disruption budget keeps, each with the budget, as a person's last question was answered."""
    upgrades: tuple[DriverUpgrade, ...] = ()
    """The newest first."""
    closed_gpus: Mapping[GpuUuid, str] = field(default_factory=dict)
    """The GPUs that are kept from new pods for an upgrade, each with the reason."""

    @property
    def under_way(self) -> DriverUpgrade | None:
        """The upgrade without an end, if any."""
        return next((one for one in self.upgrades if one.is_open), None)

    @property
    def last_seconds(self) -> float | None:
        """Length of the newest successful upgrade of the node; `None` before the first."""
        done = (one for one in self.upgrades if one.ending is UpgradeEnding.DONE and one.ended_seconds is not None)
        return next((one.ended_seconds - one.began_seconds for one in done if one.ended_seconds is not None), None)
