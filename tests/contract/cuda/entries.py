"""Entry points of the CUDA driver as our two tables have them: the fake's, and the vGPU library's hooks."""

import re
from functools import cache
from pathlib import Path
from typing import Final

from tests.component.vgpu.front.test_cuda_headers import list_called, list_hooks
from tests.fakes import cuda

LOOKUP: Final = Path(cuda.__file__).parent / "src/lookup.c"
NO_FLAG, LEGACY, PER_THREAD = range(3)
FLAGS: Final = (NO_FLAG, LEGACY, PER_THREAD)
TO_COME: Final = 99990
"""A version of CUDA that no driver knows."""

Entry = tuple[str, str, int, bool]
"""Base name, symbol, from which version of CUDA on, and whether for the stream per thread."""


@cache
def list_fake_entries() -> tuple[Entry, ...]:
    rows = re.findall(r"^    ENTRY\((\w+), (\w+), (\d+), (\d)\)", LOOKUP.read_text(), re.MULTILINE)
    return tuple((base, symbol, int(since), each == "1") for base, symbol, since, each in rows)


@cache
def list_hook_entries() -> tuple[Entry, ...]:
    """Without those of which only the address is known."""
    return tuple((row[0], symbol, row[1], row[2]) for symbol, row in list_hooks().items() if row)


@cache
def list_symbols() -> tuple[str, ...]:
    """All that the vGPU library stands before or calls, and all that the fake has a place for."""
    return tuple(sorted({*list_hooks(), *list_called(), *(symbol for _, symbol, _, _ in list_fake_entries())}))


@cache
def list_questions() -> tuple[tuple[str, int, int], ...]:
    """Each base name in the versions in which something begins, those before, and one to come; with all flags."""
    entries = {*list_fake_entries(), *list_hook_entries()}
    versions = {(base, each) for base, _, since, _ in entries for each in (since - 10, since, 12000, TO_COME)}
    return tuple((base, version, flags) for base, version in sorted(versions) for flags in FLAGS)


def choose(entries: tuple[Entry, ...], exports: frozenset[str], base: str, version: int, flags: int) -> str | None:
    """The symbol that a driver with these exports leads to, by these entries.

    One for the stream per thread takes the place of all others of its name where that is asked for, also in versions of
    CUDA before it.
    """
    mine = [entry for entry in entries if entry[0] == base and entry[1] in exports]
    if flags == PER_THREAD and any(per_thread for *_, per_thread in mine):
        mine = [entry for entry in mine if entry[3]]
    else:
        mine = [entry for entry in mine if not entry[3]]
    fitting = [(since, symbol) for _, symbol, since, _ in mine if since <= version]
    return max(fitting)[1] if fitting else None
