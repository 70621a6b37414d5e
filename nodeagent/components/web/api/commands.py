"""The commands of the admin socket; pure, as the work is done behind the port.

Owns who may command and the form of each command. Refuses peers that are neither root nor the agent's own user.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from nodeagent.components.web.api.admin import (
    CONFIGURED,
    ClearCommand,
    CommandMalformed,
    CrashCommand,
    DoorCommand,
    FaultCommand,
    ForgetCommand,
    LayoutCommand,
    PartCommand,
    ReleaseCommand,
    describe_person,
    parse_command,
)
from nodeagent.config.sections.hardware import RELEASE_SECONDS
from nodeagent.model.offering import Door
from nodeagent.model.parts import PartWish
from nodeagent.model.ports import AgentControl


class Order(NamedTuple):
    """A command as received."""

    body: bytes
    uid: int
    pid: int


class Commands:
    """Every command by its path; each returns a sentence about its outcome.

    A malformed body raises `CommandMalformed`, an impossible command `ControlRefused`.
    """

    def __init__(self, control: AgentControl) -> None:
        self._control = control

    def list(self) -> dict[str, Callable[[Order], Awaitable[str]]]:
        """The commands there are."""
        return {
            "/api/v1/reload": lambda _order: self._control.reload(),
            "/api/v1/faults": self._fault,
            "/api/v1/crash": self._crash,
            "/api/v1/release": self._release,
            "/api/v1/resume": lambda _order: self._control.resume(),
            "/api/v1/clear": self._clear,
            "/api/v1/forget": self._forget,
            "/api/v1/door": self._set_door,
            "/api/v1/layout": self._apply_layout,
            "/api/v1/part": self._set_part,
        }

    async def _fault(self, order: Order) -> str:
        command = parse_command(order.body, FaultCommand)
        return await self._control.inject_fault(command.fault, command.arguments)

    async def _crash(self, order: Order) -> str:
        command = parse_command(order.body, CrashCommand)
        return await self._control.crash_component(command.component, command.reason)

    async def _release(self, order: Order) -> str:
        command = parse_command(order.body, ReleaseCommand)
        shortest, longest = RELEASE_SECONDS
        if command.seconds is not None and not shortest <= command.seconds <= longest:
            raise CommandMalformed(
                f"a release lasts {shortest:g} to {longest:g} seconds, not {command.seconds:g}; "
                "one that is needed for longer is asked for again"
            )
        return await self._control.release(command.reason, command.seconds)

    async def _clear(self, order: Order) -> str:
        command = parse_command(order.body, ClearCommand)
        if not command.reason.strip():
            raise CommandMalformed("a GPU is cleared for a reason, and it is empty")
        who = describe_person(command.who, order.uid, order.pid)
        return await self._control.clear_gpu(command.gpu, command.reason, who)

    async def _forget(self, order: Order) -> str:
        command = parse_command(order.body, ForgetCommand)
        return await self._control.forget_gpu(command.gpu, describe_person(command.who, order.uid, order.pid))

    async def _set_door(self, order: Order) -> str:
        command = parse_command(order.body, DoorCommand)
        door = None if command.door == CONFIGURED else Door(command.door)
        return await self._control.set_door(command.gpu, door, describe_person(command.who, order.uid, order.pid))

    async def _apply_layout(self, order: Order) -> str:
        command = parse_command(order.body, LayoutCommand)
        return await self._control.apply_layout(command.layout, describe_person(command.who, order.uid, order.pid))

    async def _set_part(self, order: Order) -> str:
        command = parse_command(order.body, PartCommand)
        if command.cores is None and command.memory_bytes is None:
            raise CommandMalformed("neither `cores` nor `memory_bytes` is given, so there is nothing to set")
        who = describe_person(command.who, order.uid, order.pid)
        wish = PartWish(
            pod=command.pod,
            container=command.container,
            cores=command.cores,
            memory_bytes=command.memory_bytes,
            who=who,
        )
        return await self._control.set_part(wish)
