"""Orders on the admin socket: the arguments that each takes, and what reaches its handler."""

from typing import Any

import pytest
from msgspec import json

from nodeagent.components.web.api.admin import CommandMalformed, parse_command
from nodeagent.model.orders import CLEAR_GPU, ORDERS, RELEASE, SET_PART, Order

BODIES = {
    "/api/v1/reload": b"ignored",
    "/api/v1/resume": b"",
    "/api/v1/faults": b'{"fault": "xid", "arguments": ["79", "3"]}',
    "/api/v1/crash": b'{"component": "web", "reason": "why"}',
    "/api/v1/release": b'{"seconds": 5, "reason": "why"}',
    "/api/v1/clear": b'{"gpu": "3", "reason": "r", "who": "me"}',
    "/api/v1/forget": b'{"gpu": "3", "who": "me"}',
    "/api/v1/door": b'{"gpu": "3", "door": "none", "who": "me"}',
    "/api/v1/cordon": b'{"gpu": "3", "reason": "r", "until": "2031-05-01T08:00:00Z", "who": "me"}',
    "/api/v1/uncordon": b'{"gpu": "3", "who": "me"}',
    "/api/v1/pause-upgrade": b'{"who": "me"}',
    "/api/v1/resume-upgrade": b'{"who": "me"}',
    "/api/v1/abort-upgrade": b'{"who": "me"}',
    "/api/v1/rehearse-upgrade": b"",
    "/api/v1/layout": b'{"layout": "all-enabled", "who": "me"}',
    "/api/v1/part": b'{"pod": "a/b", "container": "c", "cores": 5, "memory_bytes": 9, "who": "me"}',
}
TAKING = [order for order in ORDERS if order.fields]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: order.path)
def test_each_order_reaches_its_handler_with_its_words(order: Order[Any]) -> None:
    """The words of the body arrive unchanged; the author is named with what the kernel knows of the peer."""
    command = json.decode(json.encode(parse_command(order, BODIES[order.path], 0, 7)))
    wanted = json.decode(BODIES[order.path]) if order.fields else {}
    assert command == ({**wanted, "who": "me (uid 0, pid 7)"} if "who" in wanted else wanted)


def test_an_author_without_a_name_is_the_peer() -> None:
    """Control characters are no part of a name."""
    assert parse_command(CLEAR_GPU, b'{"gpu": "3", "reason": "r"}', 0, 7).who == "uid 0, pid 7"
    assert parse_command(CLEAR_GPU, b'{"gpu": "3", "reason": "r", "who": "me\\u001b"}', 0, 7).who == "me (uid 0, pid 7)"


@pytest.mark.parametrize("order", TAKING, ids=lambda order: order.path)
@pytest.mark.parametrize("body", [b"[1]", b"{", b'{"x":' * 10_000, b'{"x":' + b"[" * 60_000], ids=range(4))
def test_a_body_that_is_no_object_reaches_no_handler(order: Order[Any], body: bytes) -> None:
    """The body is refused with the place of the mistake; deep nesting is no failure of the agent's own."""
    with pytest.raises(CommandMalformed, match="malformed command: "):
        parse_command(order, body, 0, 7)


def test_a_gpu_is_cleared_for_a_reason() -> None:
    """An empty reason is none."""
    with pytest.raises(CommandMalformed, match="say why"):
        parse_command(CLEAR_GPU, b'{"gpu": "3", "reason": " "}', 0, 7)


def test_a_container_gets_some_other_limit() -> None:
    """A command without a limit is a slip."""
    with pytest.raises(CommandMalformed, match="nothing to set"):
        parse_command(SET_PART, b'{"pod": "b"}', 0, 7)


@pytest.mark.parametrize("seconds", ["0", "-1", "0.5", "86401", "1e300"])
def test_a_release_has_bounds(seconds: str) -> None:
    """As the setting has them: a forgotten release ends within a day."""
    with pytest.raises(CommandMalformed, match="lasts 1 to 86400 seconds, not"):
        parse_command(RELEASE, f'{{"seconds": {seconds}}}'.encode(), 0, 7)


def test_a_release_without_words_is_of_the_settings_length() -> None:
    """An empty body is an empty object."""
    assert parse_command(RELEASE, b"", 0, 7).seconds is None
