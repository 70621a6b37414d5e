"""THE list of orders: what a person can have the running agent do, over its admin socket.

The admin socket, the API's index, the OpenAPI document and the command line read this list. A component carries an
order out by giving `core.life.orders.OrderHandlers` its handler for as long as the component runs.
"""

from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, get_args

from nodeagent.model.cordons import check_reason, parse_until
from nodeagent.model.errors import ControlRefused
from nodeagent.model.offering import ModeWord
from nodeagent.model.values import Value

CONFIGURED: Final = "configured"
OrderedMode: TypeAlias = Literal[ModeWord, "configured"]
DOOR_WORDS: Final[tuple[str, ...]] = get_args(OrderedMode)
NO_UPGRADES: Final = (
    "this agent upgrades no driver: set driver.upgrade to observe or act; where it is, the part has yet to start or has"
    " failed, see `nodeagent status`"
)
RELEASE_SECONDS: Final = (1.0, 86400.0)
"""The shortest and the longest release of the driver."""


class Command(Value, frozen=True):
    """The arguments of an order; an impossible combination is a `ValueError`."""


class NoArguments(Command, frozen=True):
    """The arguments of an order without any."""


class AuthoredCommand(Command, frozen=True, kw_only=True):
    """The arguments of an order that is logged with its author."""

    who: str = ""
    """The author's name as claimed; the agent adds the peer's uid and pid."""


class FaultCommand(Command, frozen=True):
    """Have the simulation misbehave."""

    fault: str
    arguments: tuple[str, ...] = ()


class CrashCommand(Command, frozen=True):
    """End a component as if it had failed."""

    component: str
    reason: str = "injected over the admin socket"


class ReleaseCommand(Command, frozen=True):
    """Give up the GPU handles."""

    reason: str = "asked for over the admin socket"
    seconds: float | None = None

    def __post_init__(self) -> None:
        """Refuse a release that ends at once or is forgotten for more than a day."""
        shortest, longest = RELEASE_SECONDS
        if self.seconds is not None and not shortest <= self.seconds <= longest:
            raise ValueError(
                f"a release lasts {shortest:g} to {longest:g} seconds, not {self.seconds:g}; "
                "one that is needed for longer is asked for again"
            )


class ClearCommand(AuthoredCommand, frozen=True):
    """Take a GPU back into service."""

    gpu: str
    reason: str

    def __post_init__(self) -> None:
        """Refuse an empty reason."""
        if not self.reason.strip():
            raise ValueError("say why with `reason` (--reason): it is kept with who cleared the GPU and when")


class ForgetCommand(AuthoredCommand, frozen=True):
    """A vanished GPU is gone for good."""

    gpu: str


class AllocationModeCommand(AuthoredCommand, frozen=True):
    """Give a GPU out in another allocation mode, called door."""

    gpu: str
    door: OrderedMode
    """`configured` leaves the choice to the configuration again."""


class CordonCommand(AuthoredCommand, frozen=True):
    """Keep a GPU from new pods."""

    gpu: str
    reason: str
    until: str = ""
    """A time of RFC 3339; empty for a cordon without an end."""

    def __post_init__(self) -> None:
        """Refuse an empty reason, and a time that is none."""
        check_reason(self.reason)
        if self.until:
            parse_until(self.until)


class UncordonCommand(AuthoredCommand, frozen=True):
    """Take back the cordon that a person or the brake gave a GPU."""

    gpu: str


class LayoutCommand(AuthoredCommand, frozen=True):
    """Have the GPUs cut as a layout says."""

    layout: str = ""
    """Empty for the layout already asked for."""


class LimitsCommand(AuthoredCommand, frozen=True):
    """Give a running container other limits; an absent limit stays as it is."""

    pod: str
    """The pod's name, with the namespace and a slash before it where the name alone is ambiguous."""
    container: str = ""
    """The container, where the pod has several with fractions."""
    cores: int | None = None
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        """Refuse a command without any limit."""
        if self.cores is None and self.memory_bytes is None:
            raise ValueError("nothing to set: give `cores` (--cores), `memory_bytes` (--memory), or both")


C = TypeVar("C", bound=Command)


class Order(Value, Generic[C], frozen=True):
    """Something that a person can have the running agent do, for root and the agent's own user alone."""

    path: str
    summary: str
    """The order in a few words, for the API's index and the command line."""
    arguments: type[C]
    absent: str = "this agent does not carry the order out"
    """The refusal while no component carries the order out."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the arguments."""
        return self.arguments.__struct_fields__

    def describe(self) -> str:
        """The summary with the names of the arguments."""
        named = ", ".join(f'"{name}"' for name in self.fields)
        return f"{self.summary}: {{{named}}}" if named else self.summary

    def refuse(self) -> ControlRefused:
        """The refusal while no component carries the order out."""
        return ControlRefused(self.absent)


RELOAD = Order(
    path="/api/v1/reload",
    summary="have the running agent read its configuration anew, and say what changed",
    arguments=NoArguments,
)
INJECT_FAULT = Order(
    path="/api/v1/faults",
    summary="have a running simulation misbehave",
    arguments=FaultCommand,
)
CRASH = Order(
    path="/api/v1/crash",
    summary="end a component as if it had failed, to see the agent recover",
    arguments=CrashCommand,
)
RELEASE = Order(
    path="/api/v1/release",
    summary="have the running agent give up every GPU handle, so that the driver can be unloaded or a GPU reset",
    arguments=ReleaseCommand,
)
RESUME = Order(
    path="/api/v1/resume",
    summary="have the running agent take the driver back, in whatever version it now is",
    arguments=NoArguments,
)
CLEAR_GPU = Order(
    path="/api/v1/clear",
    summary="take a GPU back into service that only a person can clear",
    arguments=ClearCommand,
    absent="health is not judged yet, or its part has failed: see `nodeagent status`",
)
FORGET_GPU = Order(
    path="/api/v1/forget",
    summary="say that a GPU which has vanished is gone for good",
    arguments=ForgetCommand,
    absent="the GPUs are not known yet: the driver is not ready, or the inventory has failed",
)
APPLY_LAYOUT = Order(
    path="/api/v1/layout",
    summary="have the running agent cut the GPUs as a layout says",
    arguments=LayoutCommand,
    absent=(
        "this agent does not cut GPUs: set mig.manage to true; where it is, the part has yet to start or has failed,"
        " see `nodeagent status`"
    ),
)
SET_DOOR = Order(
    path="/api/v1/door",
    summary="take a GPU out of service for the kubelet, or give it back",
    arguments=AllocationModeCommand,
    absent="the doors are not known yet, or their part has failed: see `nodeagent status`",
)
CORDON_GPU = Order(
    path="/api/v1/cordon",
    summary="keep a GPU from new pods; pods that have the GPU keep it",
    arguments=CordonCommand,
    absent="the doors are not known yet, or their part has failed: see `nodeagent status`",
)
UNCORDON_GPU = Order(
    path="/api/v1/uncordon",
    summary="take back the cordon that a person or the brake gave a GPU",
    arguments=UncordonCommand,
    absent="the doors are not known yet, or their part has failed: see `nodeagent status`",
)
PAUSE_UPGRADE = Order(
    path="/api/v1/pause-upgrade",
    summary="hold the upgrade of the driver before its next step",
    arguments=AuthoredCommand,
    absent=NO_UPGRADES,
)
RESUME_UPGRADE = Order(
    path="/api/v1/resume-upgrade",
    summary="go on with a paused upgrade of the driver, or allow another try after one that failed",
    arguments=AuthoredCommand,
    absent=NO_UPGRADES,
)
REHEARSE_UPGRADE = Order(
    path="/api/v1/rehearse-upgrade",
    summary="have the API server say which pods a disruption budget would keep; no pod is asked to leave",
    arguments=NoArguments,
    absent=NO_UPGRADES,
)
ABORT_UPGRADE = Order(
    path="/api/v1/abort-upgrade",
    summary="give up the upgrade of the driver, and have everything back that it put aside",
    arguments=AuthoredCommand,
    absent=NO_UPGRADES,
)
SET_PART = Order(
    path="/api/v1/part",
    summary="give a running container other limits",
    arguments=LimitsCommand,
    absent="no parts of GPUs are given: `fractions.enabled` is off, or the part is starting",
)

ORDERS: Final[tuple[Order[Any], ...]] = (
    RELOAD,
    INJECT_FAULT,
    CRASH,
    RELEASE,
    RESUME,
    CLEAR_GPU,
    FORGET_GPU,
    APPLY_LAYOUT,
    SET_DOOR,
    CORDON_GPU,
    UNCORDON_GPU,
    PAUSE_UPGRADE,
    RESUME_UPGRADE,
    REHEARSE_UPGRADE,
    ABORT_UPGRADE,
    SET_PART,
)
