"""What single values are taken and refused, and that each kind reads back what it writes."""

import re
from pathlib import Path
from typing import Any

import pytest

from nodeagent.config.kinds import (
    AbsolutePath,
    Address,
    Flag,
    ListenAddress,
    Maybe,
    Number,
    OneOf,
    Regex,
    Text,
    Whole,
)
from nodeagent.config.knobs import Kind
from tests.unit.config.helpers import complaints, read

WORDS = OneOf(("auto", "true", "false"))

TAKEN: list[tuple[Kind[Any], str, Any]] = [
    (Flag(), "true", True),
    (Flag(), "No", False),
    (Flag(), "on", True),
    (Whole(-5, 100), "-5", -5),
    (Whole(0, 100), "010", 10),
    (Whole(0, 100), "+7", 7),
    (Number(0, 10), "10", 10.0),
    (Number(0, 10), "2.5e-1", 0.25),
    (Number(0, 10), ".5", 0.5),
    (WORDS, "true", "true"),
    (WORDS, "'auto'", "auto"),
    (Text(), "007", "007"),
    (Text(), "1:30", "1:30"),
    (Text(), "'null'", "null"),
    (Text(), "null", ""),
    (Text(), "NVIDIA A100*", "NVIDIA A100*"),
    (Regex(), "'^app.*'", "^app.*"),
    (AbsolutePath(), "/a/b", Path("/a/b")),
    (AbsolutePath(), "//a/b/", Path("/a/b")),
    (ListenAddress(), "0.0.0.0:1", Address("0.0.0.0", 1)),
    (ListenAddress(), "':9400'", Address("", 9400)),
    (ListenAddress(), "'[::1]:65535'", Address("::1", 65535)),
    (ListenAddress(), "node-1.example:0", Address("node-1.example", 0)),
    (Maybe(Whole(1, 9)), "null", None),
    (Maybe(Whole(1, 9)), "''", None),
    (Maybe(Whole(1, 9)), "~", None),
    (Maybe(Whole(1, 9)), "3", 3),
]


@pytest.mark.parametrize(("kind", "text", "value"), TAKEN)
def test_kind_takes_value(kind: Kind[Any], text: str, value: Any) -> None:
    """A value that fits is read as what the setting means by it, not as what YAML would guess."""
    assert read(kind, text) == value


REFUSED: list[tuple[Kind[Any], str]] = [
    (Flag(), "'true'"),
    (Flag(), "1"),
    (Flag(), "[true]"),
    (Whole(0, 100), "101"),
    (Whole(0, 100), "-1"),
    (Whole(0, 100), "'5'"),
    (Whole(0, 100), "5.0"),
    (Whole(0, 100), "1:30"),
    (Whole(0, 100), "0x10"),
    (Whole(0, 100), "9" * 5000),
    (Whole(0, 100), "true"),
    (Number(0, 10), ".nan"),
    (Number(0, 10), ".inf"),
    (Number(0, 10), "nan"),
    (Number(0, 10), "10.1"),
    (Number(0, 10), "1e999"),
    (Number(0, 10), "'1'"),
    (WORDS, "True"),
    (WORDS, "[auto]"),
    (Text(), "[a]"),
    (Text(), '"a\\nb"'),
    (Text(), '"a\\u2028b"'),
    (Text(longest=3), "abcd"),
    (Text("digits", "[0-9]+"), "12x"),
    (Regex(), "'('"),
    (AbsolutePath(), "etc/x"),
    (AbsolutePath(), "''"),
    (AbsolutePath(), "[/a]"),
    (AbsolutePath(), '"/a\\0b"'),
    (AbsolutePath(), "/" + "a" * 4096),
    (ListenAddress(), "9400"),
    (ListenAddress(), "localhost"),
    (ListenAddress(), "'::1:9400'"),
    (ListenAddress(), "'[localhost]:9400'"),
    (ListenAddress(), "host:65536"),
    (ListenAddress(), "host:-1"),
    (ListenAddress(), "'host:'"),
    (ListenAddress(), "a_b:9400"),
    (ListenAddress(), "[a]"),
    (Maybe(Whole(1, 9)), "10"),
]


@pytest.mark.parametrize(("kind", "text"), REFUSED)
def test_kind_refuses_value(kind: Kind[Any], text: str) -> None:
    """A value that does not fit gets one line with place, value and what to give instead."""
    (line,) = complaints(kind, text)
    assert line.startswith("test.yaml:1: here: value ")
    assert re.search(r" is refused; give \S+", line)
    assert len(line) < 300


@pytest.mark.parametrize(("kind", "text", "value"), TAKEN)
def test_plain_value_reads_back(kind: Kind[Any], text: str, value: Any) -> None:
    """What a kind writes for a value, it reads as that value."""
    plain = kind.plain(value)
    written = "null" if plain is None else repr(plain) if isinstance(plain, str) else str(plain).lower()
    assert read(kind, written) == value


def test_secret_value_is_not_shown() -> None:
    """A refused secret is named by its place only."""
    (line,) = complaints(Whole(1, 2), "hunter2", secret=True)
    assert "hunter2" not in line
    assert "***" in line


def test_one_of_names_every_word() -> None:
    """The remedy lists what is taken, also where it is a single word."""
    assert OneOf(("a", "b", "c")).label == "a, b or c"
    assert OneOf(("a",)).label == "a"


def test_large_limits_are_written_out() -> None:
    """Nobody reads powers of ten at night."""
    assert Number(0.5, 2592000).label == "a number from 0.5 to 2592000"


def test_address_is_written_as_it_is_read() -> None:
    """An IPv6 host gets its brackets back."""
    assert [str(Address(host, 1)) for host in ("::1", "h", "")] == ["[::1]:1", "h:1", ":1"]
