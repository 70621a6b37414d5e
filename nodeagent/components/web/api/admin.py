"""The bodies of commands on the admin socket, and which peers may send them; pure."""

from typing import Final, Literal, TypeVar

from msgspec import DecodeError, ValidationError, json

from nodeagent.model.values import Value

C = TypeVar("C", bound=Value)


class FaultCommand(Value, frozen=True):
    """Have the simulation misbehave."""

    fault: str
    arguments: tuple[str, ...] = ()


class CrashCommand(Value, frozen=True):
    """End a component as if it had failed."""

    component: str
    reason: str = "injected over the admin socket"


class ReleaseCommand(Value, frozen=True):
    """Give up the GPU handles."""

    reason: str = "asked for over the admin socket"
    seconds: float | None = None


class ClearCommand(Value, frozen=True):
    """Take a GPU back into service."""

    gpu: str
    reason: str
    who: str = ""
    """The person's own word for themselves; the peer's uid is noted beside it."""


class ForgetCommand(Value, frozen=True):
    """A vanished GPU is gone for good."""

    gpu: str
    who: str = ""
    """As for a clearing."""


CONFIGURED: Final = "configured"


class DoorCommand(Value, frozen=True):
    """Give a GPU out in another allocation mode, called door."""

    gpu: str
    door: Literal["whole", "fractions", "claims", "none", "configured"]
    """`configured` leaves the choice to the configuration again."""
    who: str = ""
    """As for a clearing."""


class LayoutCommand(Value, frozen=True):
    """Have the GPUs cut as a layout says."""

    layout: str = ""
    """Empty for the layout already asked for."""
    who: str = ""
    """As for a clearing."""


class PartCommand(Value, frozen=True):
    """Give a running container other limits."""

    pod: str
    container: str = ""
    cores: int | None = None
    memory_bytes: int | None = None
    who: str = ""
    """As for a clearing."""


class CommandDone(Value, frozen=True):
    """The outcome of a command, in a sentence."""

    done: str


class CommandMalformed(Exception):
    """The body is not the JSON object of this command."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"malformed command: {reason}")


def parse_command(body: bytes, kind: type[C]) -> C:
    """The command in a body; an empty body is an empty object.

    Raises:
        CommandMalformed: The body is not JSON, or of another form; the message says where.
    """
    try:
        return json.decode(body or b"{}", type=kind)
    except (ValidationError, DecodeError) as error:
        raise CommandMalformed(str(error)) from error
    except RecursionError as error:
        raise CommandMalformed("it is nested too deep") from error


def describe_person(claimed: str, uid: int | None, pid: int | None) -> str:
    """The author of a command: the claimed name, and the peer's uid and pid from the kernel."""
    name = "".join(character for character in claimed if character.isprintable())[:64].strip()
    proof = f"uid {uid}, pid {pid}"
    return f"{name} ({proof})" if name else proof


def may_command(peer_uid: int, own_uid: int) -> bool:
    """Only root and the user the agent runs as may change anything; a TCP peer has no uid and may not."""
    return peer_uid in {0, own_uid}
