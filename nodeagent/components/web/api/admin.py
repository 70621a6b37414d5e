"""What a command on the admin socket says, and whether this peer may say it; pure."""

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
    """Who says so, by their own word; the peer's uid is noted beside it."""


class ForgetCommand(Value, frozen=True):
    """A GPU that has vanished is gone for good."""

    gpu: str
    who: str = ""
    """As for a clearing."""


CONFIGURED: Final = "configured"


class DoorCommand(Value, frozen=True):
    """Have a GPU go through a door."""

    gpu: str
    door: Literal["whole", "fractions", "claims", "none", "configured"]
    """`configured` leaves it to the configuration again."""
    who: str = ""
    """As for a clearing."""


class LayoutCommand(Value, frozen=True):
    """Have the GPUs cut as a layout says."""

    layout: str = ""
    """Empty for the one that is asked for already."""
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
    """What was done, in a sentence."""

    done: str


class CommandMalformed(Exception):
    """The body is not the JSON object that this command takes."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"malformed command: {reason}")


def parse_command(body: bytes, kind: type[C]) -> C:
    """The command in this body; an empty body is an empty object.

    Raises:
        CommandMalformed: not JSON, or not of this form; says where.
    """
    try:
        return json.decode(body or b"{}", type=kind)
    except (ValidationError, DecodeError) as error:
        raise CommandMalformed(str(error)) from error
    except RecursionError as error:
        raise CommandMalformed("it is nested too deep") from error


def describe_person(claimed: str, uid: int | None, pid: int | None) -> str:
    """Who gave a command: what they call themselves, and what the kernel knows of them."""
    name = "".join(character for character in claimed if character.isprintable())[:64].strip()
    proof = f"uid {uid}, pid {pid}"
    return f"{name} ({proof})" if name else proof


def may_command(peer_uid: int, own_uid: int) -> bool:
    """Only root and the user the agent runs as may change anything; a TCP peer has no uid and may not."""
    return peer_uid in {0, own_uid}
