"""The next step of an upgrade: the phase alone is remembered, and driver and holders are looked at anew.

Laws: an earlier phase never comes again. The drain of an upgrade that goes on ends with slots. No module is unloaded
while a GPU has a holder. An upgrade given up before the modules are out leaves the node unchanged. A driver that is not
loaded has no holders: no pod is waited for after a reboot. Every way ends in the phase `restore`, or in a wait with a
reason.
"""

from enum import StrEnum
from typing import Final, Literal, TypeAlias

from msgspec.structs import replace

from nodeagent.model.upgrades import DriverUpgrade, UpgradeEnding, UpgradePhase
from nodeagent.model.values import Value

InstalledBy: TypeAlias = Literal["command", "container", "nobody"]
CONTAINER: Final = "container"
_PHASES: Final = {
    UpgradePhase.DRAIN: "pods leave the GPUs",
    UpgradePhase.PAUSE: "other programs with the driver open are paused",
    UpgradePhase.UNLOAD: "the old modules leave",
    UpgradePhase.INSTALL: "the new driver comes",
    UpgradePhase.RESTORE: "the driver is taken back and whoever was paused comes back",
}


class Act(StrEnum):
    """Work of a step that takes long."""

    UNLOAD = "unload"
    """The driver is let go, and the modules are taken out, by the driver's own pod where a pod has brought them."""
    INSTALL = "install"
    """The command of the settings runs, where there is one, and the modules are loaded."""
    LOAD = "load"
    """The modules that are there are loaded."""


class Answer(Value, frozen=True):
    """The end of an act of the present phase, in this life of the agent."""

    act: Act
    problem: str = ""
    """Empty where the act ended well."""


class Seen(Value, frozen=True):
    """Observations for the next step."""

    now_seconds: float
    module: str
    """The version of the loaded kernel module; empty without one."""
    holders: tuple[str, ...] = ()
    """Whoever has a GPU or the driver and must leave, as far as looked for in this phase."""
    has_pods: bool = False
    """Whether a pod of the journal has a GPU, or the GPUs are not closed to new pods yet."""
    hold: str = ""
    """Why no further step may begin; empty without a reason."""
    without_slots: str = ""
    """Why the GPUs may not be closed yet, in the phase `drain`; empty with a slot in each domain of the node."""
    answer: Answer | None = None
    waits: str = ""
    """What the way back waits for, in the phase `restore`; empty once all is back."""


class Limits(Value, frozen=True):
    """The settings of an upgrade."""

    installed_by: InstalledBy = "nobody"
    act_seconds: float = 1800.0
    """How long the modules may take to leave, and another program to bring the new driver."""


class Step(Value, frozen=True):
    """The upgrade from now on, with the act to begin, or what is waited for."""

    upgrade: DriverUpgrade
    act: Act | None = None
    why: str = ""


def step_upgrade(upgrade: DriverUpgrade, seen: Seen, limits: Limits) -> Step:
    """The next step of an open upgrade."""
    match upgrade.phase:
        case UpgradePhase.DRAIN | UpgradePhase.PAUSE:
            return _make_way(upgrade, seen)
        case UpgradePhase.UNLOAD | UpgradePhase.INSTALL:
            return _exchange(upgrade, seen, limits)
        case UpgradePhase.RESTORE if seen.waits:
            return Step(upgrade=upgrade, why=seen.waits)
        case _:
            return _end(upgrade, seen)


def fail(upgrade: DriverUpgrade, why: str) -> DriverUpgrade:
    """The upgrade on its way back; the first reason stays."""
    return upgrade if upgrade.is_failing else replace(upgrade, failure=why)


def _enter(upgrade: DriverUpgrade, phase: UpgradePhase, seen: Seen) -> Step:
    return Step(upgrade=replace(upgrade, phase=phase, phase_seconds=seen.now_seconds))


def _make_way(upgrade: DriverUpgrade, seen: Seen) -> Step:
    if upgrade.is_failing or seen.module == upgrade.wanted:
        return _enter(upgrade, UpgradePhase.RESTORE, seen)
    if kept_back := seen.without_slots or (seen.module and seen.hold):
        return Step(upgrade=upgrade, why=kept_back)
    if not seen.module:
        return _enter(upgrade, UpgradePhase.INSTALL, seen)
    if upgrade.phase is UpgradePhase.DRAIN:
        waits = f"pods leave: {_name(seen.holders)}" if seen.has_pods else ""
        return Step(upgrade=upgrade, why=waits) if waits else _enter(upgrade, UpgradePhase.PAUSE, seen)
    if seen.holders:
        return Step(upgrade=upgrade, why=f"others let go of the driver: {_name(seen.holders)}")
    return _enter(upgrade, UpgradePhase.UNLOAD, seen)


def _exchange(upgrade: DriverUpgrade, seen: Seen, limits: Limits) -> Step:
    if seen.module == upgrade.wanted:
        come = upgrade if upgrade.aborted_by else replace(upgrade, failure="")
        return _enter(come, UpgradePhase.RESTORE, seen)
    if upgrade.is_failing:
        return _go_back(upgrade, seen, limits)
    if seen.module:
        return _unload(upgrade, seen, limits)
    if upgrade.phase is UpgradePhase.UNLOAD:
        return _enter(upgrade, UpgradePhase.INSTALL, seen)
    return Step(upgrade=upgrade, why=seen.hold) if seen.hold else _install(upgrade, seen, limits)


def _install(upgrade: DriverUpgrade, seen: Seen, limits: Limits) -> Step:
    if limits.installed_by == CONTAINER:
        return _await(upgrade, seen, limits)
    if seen.answer is None or seen.answer.act is not Act.INSTALL:
        return Step(upgrade=upgrade, act=Act.INSTALL, why=f"driver {upgrade.wanted} is installed and loaded")
    return Step(
        upgrade=fail(upgrade, seen.answer.problem or "no module of the driver is loaded after the installation")
    )


def _unload(upgrade: DriverUpgrade, seen: Seen, limits: Limits) -> Step:
    """A module of another version is loaded: it leaves once nobody has a GPU."""
    if seen.answer is not None and seen.answer.act is Act.INSTALL:
        why = seen.answer.problem or f"the installation has left driver {seen.module} loaded"
        return Step(upgrade=fail(upgrade, why))
    if seen.hold:
        return Step(upgrade=upgrade, why=seen.hold)
    is_by_pod = limits.installed_by == CONTAINER
    if is_by_pod and upgrade.phase is UpgradePhase.INSTALL:
        return Step(upgrade=fail(upgrade, f"a driver pod has loaded driver {seen.module}"))
    waits = f"held by {_name(seen.holders)}" if seen.holders else ""
    if not waits and seen.answer is not None and seen.answer.act is Act.UNLOAD:
        again = f"a driver pod keeps driver {seen.module} loaded, or has loaded it again" if is_by_pod else ""
        waits = seen.answer.problem or again
    if waits and _is_late(upgrade, seen, limits):
        return Step(upgrade=fail(upgrade, f"the modules are not out after {limits.act_seconds:g} s: {waits}"))
    if seen.holders:
        return Step(upgrade=upgrade, why=waits)
    return Step(upgrade=upgrade, act=Act.UNLOAD, why=waits or f"the modules of driver {seen.module} leave")


def _await(upgrade: DriverUpgrade, seen: Seen, limits: Limits) -> Step:
    if _is_late(upgrade, seen, limits):
        return Step(upgrade=fail(upgrade, f"no driver pod has loaded a driver within {limits.act_seconds:g} s"))
    return Step(upgrade=upgrade, why=f"a driver pod brings driver {upgrade.wanted}")


def _go_back(upgrade: DriverUpgrade, seen: Seen, limits: Limits) -> Step:
    """Load what is there: some modules may be out already, although the driver itself is loaded."""
    is_by_pod = limits.installed_by == CONTAINER
    answer = seen.answer if seen.answer is not None and seen.answer.act is Act.LOAD else None
    if seen.module and (is_by_pod or answer is not None):
        return _enter(upgrade, UpgradePhase.RESTORE, seen)
    waits = "a driver pod brings its driver" if is_by_pod else answer.problem if answer is not None else ""
    why = f"{upgrade.why_not_done}; no driver is loaded{f': {waits}' if waits else ''}"
    return Step(upgrade=upgrade, act=None if is_by_pod else Act.LOAD, why=why)


def _end(upgrade: DriverUpgrade, seen: Seen) -> Step:
    if upgrade.aborted_by:
        ending = UpgradeEnding.ABORTED
    else:
        ending = UpgradeEnding.FAILED if upgrade.failure else UpgradeEnding.DONE
    return Step(upgrade=replace(upgrade, ending=ending, ended_seconds=seen.now_seconds))


def _is_late(upgrade: DriverUpgrade, seen: Seen, limits: Limits) -> bool:
    return seen.now_seconds - upgrade.phase_seconds > limits.act_seconds


def _name(holders: tuple[str, ...]) -> str:
    return ", ".join(holders)


def describe_step(upgrade: DriverUpgrade, before: DriverUpgrade) -> str:
    """The step of an upgrade since its last record; empty where only the journal needs the record."""
    news = []
    if upgrade.failure and upgrade.failure != before.failure:
        news.append(f"failed: {upgrade.failure}")
    if upgrade.aborted_by != before.aborted_by:
        news.append(f"aborted by {upgrade.aborted_by}")
    if upgrade.paused_by != before.paused_by:
        news.append(f"paused by {upgrade.paused_by}" if upgrade.paused_by else "goes on")
    if upgrade.may_repeat and not before.may_repeat:
        news.append("another try is allowed")
    if upgrade.boot != before.boot:
        news.append("taken up after a reboot")
    if upgrade.phase is not before.phase:
        news.append(_PHASES[upgrade.phase])
    if upgrade.ending is not None and before.ending is None:
        news.append(f"ended, {upgrade.ending}")
    return "; ".join(news)
