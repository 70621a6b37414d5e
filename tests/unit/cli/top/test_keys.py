"""Bytes of a terminal as keys."""

import pytest

from nodeagent.cli.top.keys import parse_keys


@pytest.mark.parametrize(
    ("content", "keys"),
    [
        (b"qs>", ["q", "s", ">"]),
        (b"\x1b[A\x1bOB\x1b[5~\x1b[6~\x1b[H\x1b[4~", ["up", "down", "page up", "page down", "home", "end"]),
        (b"\r\t\x7f", ["enter", "tab", "backspace"]),
        ("ä€𝄞".encode(), ["ä", "€", "𝄞"]),
        (b"\x1bx", ["escape", "x"]),
        (b"\x1b[1;5Cq", ["q"]),
        (b"\x00\x01q\xff", ["q"]),
    ],
)
def test_keys_are_named(content: bytes, keys: list[str]) -> None:
    """Characters are themselves; what means nothing is nothing, and takes nothing with it."""
    assert parse_keys(content, is_all=False) == (keys, b"")


@pytest.mark.parametrize(
    ("content", "keys"),
    [(b"\x1b", ["escape"]), (b"\x1b[", []), (b"\x1b[5", []), (b"\xe2\x82", []), (b"q\x1b", ["escape"])],
)
def test_half_a_key_waits_for_the_rest(content: bytes, keys: list[str]) -> None:
    """Until nothing follows: then an escape character was the key."""
    first, rest = parse_keys(content, is_all=False)
    assert first == (["q"] if content.startswith(b"q") else [])
    assert content.endswith(rest)
    assert rest
    assert parse_keys(rest, is_all=True) == (keys, b"")
