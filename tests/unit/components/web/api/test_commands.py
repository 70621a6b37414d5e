"""Commands on the admin socket: what each takes, and what reaches the agent."""

from collections.abc import Sequence

import pytest

from nodeagent.components.web.api.admin import CommandMalformed
from nodeagent.components.web.api.commands import Commands, Order
from nodeagent.components.web.api.index import ADMIN, INDEX
from nodeagent.model.offering import Door
from nodeagent.model.parts import PartWish


class RecordingControl:
    """An agent that does what it is told and says so."""

    async def reload(self) -> str:
        return "reloaded"

    async def inject_fault(self, fault: str, arguments: Sequence[str]) -> str:
        return f"{fault} {' '.join(arguments)}"

    async def crash_component(self, name: str, reason: str) -> str:
        return f"{name}: {reason}"

    async def release(self, reason: str, seconds: float | None) -> str:
        return f"released for {seconds} because {reason}"

    async def resume(self) -> str:
        return "resumed"

    async def clear_gpu(self, name: str, reason: str, who: str) -> str:
        return f"{name} because {reason} by {who}"

    async def forget_gpu(self, name: str, who: str) -> str:
        return f"{name} is gone, says {who}"

    async def set_door(self, name: str, door: Door | None, who: str) -> str:
        return f"{name} through {door} for {who}"

    async def apply_layout(self, name: str, who: str) -> str:
        return f"{name or 'the same'} for {who}"

    async def set_part(self, wish: PartWish) -> str:
        return f"{wish.pod} ({wish.container}) {wish.cores} {wish.memory_bytes} for {wish.who}"


async def give(path: str, body: bytes) -> str:
    return await Commands(RecordingControl()).list()[path](Order(body=body, uid=0, pid=7))


@pytest.mark.parametrize(
    ("path", "body", "done"),
    [
        ("/api/v1/reload", b"", "reloaded"),
        ("/api/v1/resume", b"ignored", "resumed"),
        ("/api/v1/faults", b'{"fault": "xid", "arguments": ["79", "3"]}', "xid 79 3"),
        ("/api/v1/crash", b'{"component": "web", "reason": "why"}', "web: why"),
        ("/api/v1/release", b'{"seconds": 5, "reason": "why"}', "released for 5.0 because why"),
        ("/api/v1/clear", b'{"gpu": "3", "reason": "r", "who": "me\\u001b"}', "3 because r by me (uid 0, pid 7)"),
        ("/api/v1/clear", b'{"gpu": "3", "reason": "r"}', "3 because r by uid 0, pid 7"),
        ("/api/v1/forget", b'{"gpu": "3", "who": "me"}', "3 is gone, says me (uid 0, pid 7)"),
        ("/api/v1/door", b'{"gpu": "3", "door": "none", "who": "me"}', "3 through none for me (uid 0, pid 7)"),
        ("/api/v1/layout", b'{"layout": "all-enabled", "who": "me"}', "all-enabled for me (uid 0, pid 7)"),
        ("/api/v1/layout", b"{}", "the same for uid 0, pid 7"),
        ("/api/v1/door", b'{"gpu": "3", "door": "configured"}', "3 through None for uid 0, pid 7"),
        ("/api/v1/part", b'{"pod": "a/b", "cores": 5}', "a/b () 5 None for uid 0, pid 7"),
        ("/api/v1/part", b'{"pod": "b", "container": "c", "memory_bytes": 9}', "b (c) None 9 for uid 0, pid 7"),
    ],
)
async def test_each_command_reaches_the_agent_with_its_words(path: str, body: bytes, done: str) -> None:
    """What was asked for is what is done; who gave a command is told with what the kernel knows of them."""
    assert await give(path, body) == done


@pytest.mark.parametrize("command", ["faults", "crash", "release", "clear", "forget", "door", "part"])
async def test_a_body_that_is_none_reaches_nobody(command: str) -> None:
    """It is refused with the place of the mistake."""
    with pytest.raises(CommandMalformed):
        await give(f"/api/v1/{command}", b"[1]")


async def test_a_gpu_is_cleared_for_a_reason() -> None:
    """An empty one is none."""
    with pytest.raises(CommandMalformed, match="for a reason"):
        await give("/api/v1/clear", b'{"gpu": "3", "reason": " "}')


async def test_a_part_is_set_to_something() -> None:
    """To change nothing is a slip."""
    with pytest.raises(CommandMalformed, match="nothing to set"):
        await give("/api/v1/part", b'{"pod": "b"}')


def test_every_command_of_the_document_is_there_and_no_other() -> None:
    """The list for people and the list that is served are one."""
    listed = {one.call.removeprefix("POST ") for one in INDEX.calls if one.where == ADMIN}
    assert set(Commands(RecordingControl()).list()) == listed


@pytest.mark.parametrize("path", ["/api/v1/faults", "/api/v1/crash", "/api/v1/release", "/api/v1/clear"])
async def test_a_body_nested_without_end_is_malformed(path: str) -> None:
    """Not a failure of the agent's own: the sender is told, within the size that a request may have."""
    for body in (b'{"x":' * 10_000, b'{"x":' + b"[" * 60_000):
        with pytest.raises(CommandMalformed):
            await give(path, body)


@pytest.mark.parametrize("seconds", ["0", "-1", "0.5", "86401", "1e300"])
async def test_a_release_has_bounds(seconds: str) -> None:
    """As the setting has them: one that is forgotten ends within a day."""
    with pytest.raises(CommandMalformed, match="lasts 1 to 86400 seconds, not"):
        await give("/api/v1/release", f'{{"seconds": {seconds}}}'.encode())
