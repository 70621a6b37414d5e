"""The programs and the library in C: where their sources are, and what is made of them."""

import re
from pathlib import Path
from typing import Final

import nodeagent

NATIVE: Final = Path(nodeagent.__file__).parent / "native"
HOOK_SOURCES: Final = tuple(sorted((NATIVE / "cdi_hook").glob("*.c")))


def _read_list(name: str) -> tuple[str, ...]:
    found = re.search(rf"^{name} \??:?= (.+)$", (NATIVE / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert found, name
    return tuple(found[1].split())


PROGRAMS: Final = (*_read_list("PROGRAMS"), *_read_list("LIBRARIES"))
MACHINES: Final = _read_list("MACHINES")
"""As `make native` has them."""
