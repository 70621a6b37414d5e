"""Parsing ld.so.cache: both formats, both byte orders, and anything at all."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.edge.host.driver.ldcache import CachedLibrary, parse_library_cache
from nodeagent.edge.host.errors import LibraryCacheInvalid
from tests.unit.edge.host.tree import encode_new_cache, encode_old_cache

X86_64 = 0x0303
ROWS = [
    (X86_64, "libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.1", 1 << 62 | 1),
    (X86_64, "libcuda.so.1", "/usr/lib/libcuda.so.1", 0),
    (0x0A03, "libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6", 0),
    (0x7703, "libodd.so", "/lib/libodd.so", 1 << 62 | 99),
    (0x0300, "libaout.so", "/lib/libaout.so", 0),
]
EXPECTED = (
    CachedLibrary(name="libcuda.so.1", path=ROWS[0][2]),
    CachedLibrary(name="libcuda.so.1", path=ROWS[1][2]),
    CachedLibrary(name="libc.so.6", path=ROWS[2][2]),
    CachedLibrary(name="libodd.so", path="/lib/libodd.so"),
)


@pytest.mark.parametrize("order", ["<", ">"])
def test_new_format_is_read_in_either_byte_order(order: str) -> None:
    """Entries come in the loader's order; what is no ELF library is left out."""
    assert parse_library_cache(encode_new_cache(ROWS, order=order)) == EXPECTED


def test_old_format_alone_is_read() -> None:
    """A cache of an old glibc has names and paths all the same."""
    content = encode_old_cache([(X86_64, "liba.so", "/lib/liba.so"), (3, "libb.so", "/lib32/libb.so")])
    assert parse_library_cache(content) == (
        CachedLibrary(name="liba.so", path="/lib/liba.so"),
        CachedLibrary(name="libb.so", path="/lib32/libb.so"),
    )


def test_new_format_behind_the_old_one_wins() -> None:
    """A file with both formats is read as the newer loader reads it."""
    # In such a file the old entries' strings lie behind the new block, so the old block ends with its entries.
    old = encode_old_cache([(X86_64, "", "")])[: 16 + 12]
    padding = b"\0" * (-len(old) % 8)
    assert parse_library_cache(old + padding + encode_new_cache(ROWS)) == EXPECTED


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "does not begin"),
        (b"\x7fELF", "does not begin"),
        (b"ld.so-1.7.0\0\x01", "within its header"),
        (b"glibc-ld.so.cache1.1\x01\0\0\0", "within its header"),
        (encode_new_cache(ROWS)[:100], "before the last one"),
        (encode_old_cache([(3, "a", "b")])[:20], "before the last one"),
    ],
)
def test_file_that_is_no_cache_is_an_error(content: bytes, reason: str) -> None:
    """What is no cache, or ends too early, is refused with the remedy."""
    with pytest.raises(LibraryCacheInvalid, match=rf"{reason}.*run `ldconfig`"):
        parse_library_cache(content)


def test_entry_that_points_outside_is_left_out() -> None:
    """One bad entry costs itself, not the others."""
    content = bytearray(encode_new_cache([ROWS[1], ROWS[2]]))
    content[48 + 4 : 48 + 8] = b"\xff\xff\xff\xff"
    assert [library.name for library in parse_library_cache(bytes(content))] == ["libc.so.6"]


@given(st.binary(max_size=300))
def test_garbage_is_refused_or_read_never_worse(content: bytes) -> None:
    """Any bytes behind any of the magics give entries or the one error."""
    for magic in (b"", b"ld.so-1.7.0\0", b"glibc-ld.so.cache1.1"):
        try:
            libraries = parse_library_cache(magic + content)
        except LibraryCacheInvalid:
            continue
        assert all(library.name and library.path for library in libraries)


@given(st.data())
def test_bit_flips_are_refused_or_read_never_worse(data: st.DataObject) -> None:
    """Any damage to a good cache gives entries or the one error, and no entry that was not announced."""
    content = bytearray(encode_new_cache(ROWS))
    for _ in range(data.draw(st.integers(1, 8))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] ^= 1 << data.draw(st.integers(0, 7))
    try:
        libraries = parse_library_cache(bytes(content[: data.draw(st.integers(0, len(content)))]))
    except LibraryCacheInvalid:
        return
    assert len(libraries) <= len(content) // 24


@pytest.mark.skipif(
    shutil.which("ldconfig", path="/sbin:/usr/sbin") is None or not Path("/etc/ld.so.cache").exists(),
    reason="this machine has no ld.so.cache to compare with",
)
def test_own_cache_is_read_as_ldconfig_reads_it() -> None:
    """On this machine the parser and `ldconfig -p` name the same libraries at the same places in the same order."""
    ldconfig = shutil.which("ldconfig", path="/sbin:/usr/sbin")
    printed = subprocess.run([str(ldconfig), "-p"], capture_output=True, text=True, check=True).stdout
    expected = re.findall(r"^\t(\S+) \(.*\) => (\S+)$", printed, re.MULTILINE)
    # by another program: tests look at nothing of this machine's where a driver may stand
    cache = subprocess.run(["cat", "/etc/ld.so.cache"], capture_output=True, check=True).stdout
    libraries = parse_library_cache(cache)
    assert [(library.name, library.path) for library in libraries] == expected
    assert expected
