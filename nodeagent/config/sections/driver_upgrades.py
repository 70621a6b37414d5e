"""The settings for upgrades of the driver; a part of `driver`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, TypeAlias

from nodeagent.config.compound import ListOf
from nodeagent.config.kinds import Number, OneOf, Text
from nodeagent.config.knobs import Section, knob
from nodeagent.model.upgrades import INSTALLED

if TYPE_CHECKING:
    from nodeagent.config.schema import Settings

UpgradeMode: TypeAlias = Literal["off", "observe", "act"]
Installer: TypeAlias = Literal["command", "container", "nobody"]


class DriverUpgradeSettings(Section):
    """Upgrades of the driver by the agent."""

    upgrade: UpgradeMode = knob(
        OneOf[UpgradeMode](("off", "observe", "act")),
        "off",
        "off for no upgrades at all, observe to say what an upgrade of the driver would do, act to do it",
        "an upgrade asks every pod with a GPU of the node to leave",
    )
    wanted_version: str = knob(
        Text("a driver's version such as 580.105.08, or installed", rf"(|{INSTALLED}|[0-9]+(\.[0-9]+){{1,2}})", 32),
        "",
        "the version of the driver that the node shall have; installed for the version of the host's packages, which an"
        " unattended upgrade may have moved on while the old module stays loaded; empty for none",
        "whoever installs drivers chooses the version",
        reload=True,
    )
    installed_by: Installer = knob(
        OneOf[Installer](("command", "container", "nobody")),
        "nobody",
        "who brings the new driver once the old modules are out: `upgrade_command`, a driver container's pod, or nobody"
        " because its packages are installed already",
        "the packages of a distribution are upgraded without the agent",
    )
    upgrade_command: tuple[str, ...] = knob(
        ListOf(Text("a word of a command", r".+", 1024), distinct=False),
        (),
        "the command that installs the wanted driver, run on the host, for `installed_by: command`; it may run a second"
        " time where the agent was killed meanwhile",
        "no command fits every distribution",
    )
    upgrade_seconds: float = knob(
        Number(10, 86400),
        1800.0,
        "how long the modules may take to leave, the command to end and a driver's pod to load its driver, each;"
        " afterwards the driver that is there is taken back",
        "an image of a driver compiles its modules, which takes minutes",
        reload=True,
    )
    services: tuple[str, ...] = knob(
        ListOf(Text("a unit of systemd", r"[A-Za-z0-9:_.@-]+", 256)),
        ("nvidia-persistenced", "nvidia-dcgm", "nvidia-fabricmanager", "nvidia-imex"),
        "services of the host with the driver open, which are stopped before the modules leave and started again"
        " afterwards; those that do not run stay as they are",
        "these are the services of NVIDIA's own packages",
        reload=True,
    )


def judge_upgrade(settings: "Settings") -> Iterator[tuple[str, str]]:
    """Every breach: path and message."""
    driver = settings.driver
    if driver.upgrade == "off":
        return
    if not driver.wanted_version:
        message = f"there is nothing to upgrade to; give a version, or {INSTALLED}, or set driver.upgrade to off"
        yield "driver.wanted_version", message
    if driver.installed_by == "command" and not driver.upgrade_command:
        yield "driver.upgrade_command", "driver.installed_by: command has no command to run; name one"
    if driver.installed_by == "container" and driver.wanted_version == INSTALLED:
        message = "a driver's container brings its version with it, and none is installed before; name the version"
        yield "driver.wanted_version", message
