"""The bodies of commands on the admin socket, and which peers may send them; pure."""

from msgspec import DecodeError, json
from msgspec.structs import replace

from nodeagent.model.orders import AuthoredCommand, C, Order
from nodeagent.model.values import Value


class CommandDone(Value, frozen=True):
    """The outcome of a command, in a sentence."""

    done: str


class CommandMalformed(Exception):
    """The body is not the JSON object of this command."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"malformed command: {reason}")


def parse_command(order: Order[C], body: bytes, uid: int, pid: int) -> C:
    """The arguments of an order in a body, with its author; an empty body is an empty object.

    Raises:
        CommandMalformed: The body is not JSON, or of another form; the message says where.
    """
    if not order.fields:
        return order.arguments()
    try:
        command = json.decode(body or b"{}", type=order.arguments)
    except DecodeError as error:
        raise CommandMalformed(str(error)) from error
    except RecursionError as error:
        raise CommandMalformed("it is nested too deep") from error
    return (
        replace(command, who=describe_person(command.who, uid, pid))
        if isinstance(command, AuthoredCommand)
        else command
    )


def describe_person(claimed: str, uid: int, pid: int) -> str:
    """The author of a command: the claimed name, and the peer's uid and pid from the kernel."""
    name = "".join(character for character in claimed if character.isprintable())[:64].strip()
    proof = f"uid {uid}, pid {pid}"
    return f"{name} ({proof})" if name else proof


def may_command(peer_uid: int, own_uid: int) -> bool:
    """Only root and the user the agent runs as may change anything; a TCP peer has no uid and may not."""
    return peer_uid in {0, own_uid}
