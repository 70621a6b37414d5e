"""Reading a library's own name, from honest and dishonest files."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.edge.host.driver.elf import LibraryIdentity, parse_library_identity, read_library_identity
from tests.support.files.driver_tree import encode_library

GOOD = encode_library("libcuda.so.1")


def parse(content: bytes) -> LibraryIdentity | None:
    return parse_library_identity(lambda offset, size: content[offset : offset + size])


@pytest.mark.parametrize("order", ["<", ">"])
def test_the_soname_is_found(order: str) -> None:
    """Either byte order is read."""
    assert parse(encode_library("libcuda.so.1", order=order)) == LibraryIdentity(62, "libcuda.so.1")


def test_a_library_of_this_machine_is_read(tmp_path: Path) -> None:
    """What a real linker wrote is understood, from a file."""
    path = tmp_path / "x.so"
    path.write_bytes(GOOD)
    assert read_library_identity(path) == LibraryIdentity(62, "libcuda.so.1")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"#!/bin/sh\n",
        GOOD[:40],
        encode_library("x.so", bits=32),
        encode_library("x.so", kind=2),
        GOOD[:5] + b"\x09" + GOOD[6:],
        GOOD[:100],
    ],
    ids=["empty", "script", "cut header", "32 bits", "program", "byte order", "cut segments"],
)
def test_anything_else_is_no_library(content: bytes) -> None:
    """Scripts, 32-bit libraries, programs and stumps are told apart without an error."""
    assert parse(content) is None


def patch(content: bytes, at: int, form: str, value: int) -> bytes:
    field = struct.pack(form, value)
    return content[:at] + field + content[at + len(field) :]


@pytest.mark.parametrize(
    ("content", "soname"),
    [
        (encode_library(""), ""),
        (encode_library("../../etc/passwd"), ""),
        (encode_library("x" * 300), ""),
        (patch(GOOD, 54, "<H", 8), ""),
        (patch(GOOD, 64 + 56, "<I", 7), ""),
        (patch(GOOD, 64, "<I", 7), ""),
    ],
    ids=["none", "a path", "endless", "odd table", "no dynamic segment", "nothing loaded"],
)
def test_a_library_may_have_no_usable_name(content: bytes, soname: str) -> None:
    """A name that is missing, leaves its directory, or never ends is none; the library stays one."""
    assert parse(content) == LibraryIdentity(62, soname)


def test_an_offset_beyond_the_kernels_reach_is_no_library(tmp_path: Path) -> None:
    """A header that points past what a file can hold ends the reading, not the agent."""
    for value in ((1 << 64) - 1, (1 << 63) - 1):
        path = tmp_path / f"{value}.so"
        path.write_bytes(patch(GOOD, 32, "<Q", value))
        assert read_library_identity(path) is None


@given(st.data())
def test_no_damage_is_an_error(data: st.DataObject) -> None:
    """Whatever is done to a library, the answer is a name without slash, or none."""
    content = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    identity = parse(bytes(content[: data.draw(st.integers(0, len(content)))]))
    assert identity is None or "/" not in identity.soname
