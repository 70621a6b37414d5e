"""`mig`: whether the agent cuts GPUs, and the MIG layouts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from nodeagent.config.compound import ListOf, MapOf, Nested
from nodeagent.config.kinds import AbsolutePath, Flag, Maybe, Number, OneOf, Text, Whole
from nodeagent.config.knobs import Section, knob, required
from nodeagent.config.sections.allocation_modes import ALL, MODE_SELECTOR

WhenBusy: TypeAlias = Literal["wait", "refuse", "evict"]

LAYOUT_NAME = Text(
    "a name of letters, digits, dots, dashes and underscores", r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", 63
)
PROFILE = Text("a MIG profile such as 1g.10gb", r"[0-9A-Za-z.,+-]+", 63)


class LayoutEntry(Section):
    """The MIG devices of some GPUs in a named layout; entries with the same name make one layout."""

    name: str = required(LAYOUT_NAME, "the layout that this is a part of")
    gpus: tuple[str, ...] = knob(
        ListOf(MODE_SELECTOR, shortest=1),
        (ALL,),
        "the GPUs: all, or by index, UUID, PCI address or model pattern; of several entries for a GPU the last counts",
        "every GPU",
    )
    enabled: bool = knob(Flag(), default=True, what="whether MIG is on", why="or there would be no MIG devices")
    devices: Mapping[str, int] = knob(
        MapOf(PROFILE, Whole(0, 999)), {}, "how many MIG devices of each profile", "MIG on, and nothing cut"
    )


class MigSettings(Section):
    """Cuts GPUs into MIG devices, as asked by a label or by the section; off, the agent never changes a GPU."""

    manage: bool = knob(
        Flag(), default=False, what="cut GPUs", why="it needs rights that reading does not, and may be another's work"
    )
    layout: str | None = knob(
        Maybe(LAYOUT_NAME),
        None,
        "the layout while the node has no label nvidia.com/mig.config",
        "the agent cuts no GPU unasked",
        reload=True,
    )
    layouts: tuple[LayoutEntry, ...] = knob(
        ListOf(Nested(LayoutEntry)),
        (),
        "layouts by name: these outrank the layouts of `layouts_file`, and both outrank the"
        " built-in all-disabled, all-enabled, all-balanced and all-<profile>",
        "the well-known names go far",
        reload=True,
    )
    layouts_file: Path | None = knob(
        Maybe(AbsolutePath()),
        None,
        "a file of layouts in mig-parted's format v1",
        "the well-known names go far",
        reload=True,
    )
    when_busy: WhenBusy = knob(
        OneOf[WhenBusy](("wait", "refuse", "evict")),
        "wait",
        "while a pod has or uses a MIG device that a change would take away: wait for the pod's"
        " end, and give the device to no new pod; refuse the change; or evict the pods through the"
        " API server, as their disruption budgets allow",
        "a change that is asked for is wanted, and nobody is to be disturbed",
        reload=True,
    )
    evict_timeout_seconds: float = knob(
        Number(1, 86400),
        600.0,
        "with when_busy: evict, how long pods may take to go before the change is given up",
        "grace periods of minutes are usual, and a budget may allow one pod after the other",
        reload=True,
    )
    pause_clients: bool = knob(
        Flag(),
        default=False,
        what="pause other DaemonSets that have the driver open while GPUs change, by labels nvidia.com/gpu.deploy.*",
        why="the agent's own parts need no pause, and what is paused does no work",
        reload=True,
    )
    call_timeout_seconds: float = knob(
        Number(1, 600), 60.0, "how long the driver may take for one call", "cutting takes seconds, a reset longer"
    )
    reset_timeout_seconds: float = knob(
        Number(1, 1800), 120.0, "how long the reset of one GPU may take", "tens of seconds are usual"
    )
