"""The beginning of an upgrade: whether another version of the driver is wanted, and what keeps the upgrade back."""

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from nodeagent.model.cluster import ClusterNode
from nodeagent.model.nvidia import DOMAIN
from nodeagent.model.upgrades import INSTALLED, UPGRADE_LABEL, DriverUpgrade, UpgradeEnding
from nodeagent.model.values import Value
from nodeagent.rules.upgrade_steps import InstalledBy

ACT: Final = "act"
SKIP_LABEL: Final = f"{DOMAIN}/gpu-driver-upgrade.skip"
"""With the value `true` a person leaves the node out of the operator's upgrades, and of the agent's."""
STATE_LABEL: Final = f"{DOMAIN}/gpu-driver-upgrade-state"
_SETTLED: Final = ("", "upgrade-done")
"""Values of the operator's label while its upgrade controller has nothing to do with the node."""


class VersionNeed(Value, frozen=True):
    """The versions of the node's driver, and the settings for an upgrade."""

    mode: str
    setting: str
    """`driver.wanted_version`: a version, `installed`, or empty."""
    installed_by: InstalledBy
    loaded: str
    """The version of the loaded module; empty without one."""
    installed: str
    """The version of the installed library; empty where the version is not known."""

    @property
    def wanted(self) -> str:
        """The wanted version; empty where none is wanted or known."""
        return self.installed if self.setting == INSTALLED else self.setting

    @property
    def is_due(self) -> bool:
        """Whether another version than the loaded one is wanted."""
        return bool(self.wanted and self.loaded) and self.wanted != self.loaded

    def describe(self) -> str:
        """The need in a sentence."""
        if not self.wanted:
            return "no version of the driver is wanted: `driver.wanted_version` is empty, or no library is installed"
        if not self.loaded:
            return f"driver {self.wanted} is wanted, and no driver is loaded: the node needs no upgrade for that"
        if not self.is_due:
            return f"driver {self.loaded} is loaded, as wanted"
        return f"would upgrade the driver from {self.loaded} to {self.wanted}"


def list_obstacles(need: VersionNeed, node: ClusterNode | None, past: Sequence[DriverUpgrade]) -> Iterator[str]:
    """Why an upgrade that is due does not begin; `past` are the upgrades that have ended, the newest first."""
    if need.mode != ACT:
        yield f"mode is {need.mode}"
    if need.installed_by == "nobody" and need.wanted != need.installed:
        yield f"nobody installs driver {need.wanted}: {need.installed or 'no driver'} is installed"
    yield from list_marks(node)
    if past and past[0].wanted == need.wanted and past[0].ending is not UpgradeEnding.DONE and not past[0].may_repeat:
        yield (
            f"upgrade {past[0].number} to {need.wanted} was not done: {past[0].why_not_done};"
            " `nodeagent driver resume` allows another try"
        )


def list_marks(node: ClusterNode | None) -> Iterator[str]:
    """The marks of the node that forbid an upgrade, each with its reason."""
    labels = node.labels if node is not None else {}
    if labels.get(UPGRADE_LABEL) in {"off", "pause"}:
        yield f"the node's label {UPGRADE_LABEL}={labels[UPGRADE_LABEL]} stops it"
    if labels.get(SKIP_LABEL) == "true":
        yield f"the node's label {SKIP_LABEL}=true leaves the node out"
    if labels.get(STATE_LABEL, "") not in _SETTLED:
        yield f"the operator's upgrade controller has the node: {STATE_LABEL}={labels[STATE_LABEL]}"


def find_hold(upgrade: DriverUpgrade, node: ClusterNode | None, acting: Collection[int], *, is_released: bool) -> str:
    """Why an upgrade under way takes no further step; empty without a reason.

    `acting` are the fault sessions with an act under way, `is_released` says whether a person has the driver.
    """
    if upgrade.paused_by:
        return f"paused by {upgrade.paused_by}; `nodeagent driver resume` goes on"
    marks = tuple(list_marks(node))
    if marks:
        return marks[0]
    if acting:
        return f"fault session {min(acting)} has an act under way"
    return "the driver is released by `nodeagent release`" if is_released else ""


def is_forbidden(node: ClusterNode | None) -> bool:
    """Whether the node's label takes an upgrade back that is under way."""
    return node is not None and node.labels.get(UPGRADE_LABEL) == "off"
