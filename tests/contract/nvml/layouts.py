"""Layouts of structures, as ctypes has them and as a C compiler has them from NVML's header, in the same rows."""

import ctypes
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.contract.nvml.headers import find_header

Layout = dict[str, tuple[int, int, str]]
"""By the member's path: where it begins, its size, and what kind of value it is; the whole structure is the path ``."""

_KINDS = {"f": "real", "d": "real", "P": "pointer", "z": "pointer", "c": "text"}
_PROBE = r"""
#include <stddef.h>
#include <stdio.h>
#define KIND(x) _Generic((x), char: "text", float: "real", double: "real", \
    signed char: "signed", short: "signed", int: "signed", long: "signed", long long: "signed", \
    unsigned char: "unsigned", unsigned short: "unsigned", unsigned int: "unsigned", \
    unsigned long: "unsigned", unsigned long long: "unsigned", default: "pointer")
#define WHOLE(name, type) printf("%s %s 0 %zu whole\n", name, "-", sizeof(type))
#define MEMBER(name, type, path) \
    printf("%s %s %zu %zu %s\n", name, #path, offsetof(type, path), sizeof(((type *)0)->path), KIND(((type *)0)->path))
int main(void)
{
"""


def measure_ctypes(structure: Any) -> Layout:
    """The layout of a ctypes structure, down to plain values; of an array its first and its last element."""
    layout: Layout = {"-": (0, ctypes.sizeof(structure), "whole")}
    layout |= _measure_members(structure, "", 0)
    return layout


def _measure_members(structure: Any, prefix: str, start: int) -> Layout:
    layout: Layout = {}
    for name, kind, *_ in structure._fields_:
        layout |= _measure(kind, f"{prefix}{name}", start + getattr(structure, name).offset)
    return layout


def _measure(kind: Any, path: str, start: int) -> Layout:
    if issubclass(kind, ctypes.Array):
        size = ctypes.sizeof(kind._type_)
        last = kind._length_ - 1
        return _measure(kind._type_, f"{path}[0]", start) | _measure(
            kind._type_, f"{path}[{last}]", start + last * size
        )
    if issubclass(kind, ctypes.Structure | ctypes.Union):
        return _measure_members(kind, f"{path}.", start)
    return {path: (start, ctypes.sizeof(kind), _name_kind(kind))}


def _name_kind(kind: Any) -> str:
    if issubclass(kind, ctypes._Pointer):
        return "pointer"
    known = _KINDS.get(kind._type_)
    return known or ("signed" if kind(-1).value < 0 else "unsigned")


def measure_header(
    version: str,
    types: dict[str, str],
    paths: Mapping[str, Iterable[str]],
    scratch: Path,
    *,
    header: Path | None = None,
) -> dict[str, Layout]:
    """What a C compiler makes of these members of these types of a header, by the names given to the types.

    Raises:
        AssertionError: the header has no such member.
    """
    rows = _write_rows(types, {name: list(paths[name]) for name in types})
    layouts: dict[str, Layout] = {name: {} for name in types}
    for line in _run_probe(header or find_header(version), rows, scratch):
        name, path, start, size, kind = line.split(" ")
        layouts[name][path] = (int(start), int(size), kind)
    return layouts


def read_constants(version: str, names: Iterable[str], scratch: Path) -> dict[str, int]:
    """The values of those constants that this header has."""
    text = find_header(version).read_text(errors="replace")
    known = sorted(
        name for name in names if re.search(rf"^\s*(?:#define\s+)?{name}\b(?:\s+\S|\s*=)", text, re.MULTILINE)
    )
    rows = (f'printf("{name} %llu\\n", (unsigned long long)({name}));' for name in known)
    found = (line.split(" ") for line in _run_probe(find_header(version), rows, scratch))
    return {name: int(value) for name, value in found}


def _run_probe(header: Path, rows: Iterable[str], scratch: Path) -> list[str]:
    source, program = scratch / "probe.c", scratch / "probe"
    source.write_text("\n".join([f'#include "{header}"', _PROBE, *rows, "return 0;", "}"]))
    command = ["cc", "-std=gnu11", "-w", "-o", str(program), str(source)]
    compiled = subprocess.run(command, capture_output=True, text=True, check=False)
    assert compiled.returncode == 0, [line for line in compiled.stderr.splitlines() if "error:" in line]
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()


def _write_rows(types: dict[str, str], paths: Mapping[str, Iterable[str]]) -> Iterator[str]:
    for name, type_name in types.items():
        yield f'WHOLE("{name}", {type_name});'
        for path in paths[name]:
            if path != "-":
                yield f'MEMBER("{name}", {type_name}, {path});'
