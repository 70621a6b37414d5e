"""What these tests run: the library, and programs that use it or parts of it."""

from pathlib import Path
from typing import Final

from tests.support.compiled import compile_once
from tests.support.native import NATIVE

HERE: Final = Path(__file__).parent
VGPU: Final = NATIVE / "vgpu"
_LEDGER: Final = ("blocks.c", "files.c", "fork.c", "identity.c", "ledger.c", "log.c")


def _list_headers() -> list[Path]:
    return sorted([*VGPU.glob("*.h"), *(NATIVE / "include").glob("*.h")])


def build_ledger_program(name: str, *flags: str) -> Path:
    """The program of that name, with what the library counts by, and nothing that stands before the driver."""
    sources = [HERE / "src" / f"{name}.c", *(VGPU / each for each in _LEDGER)]
    return compile_once(
        HERE / "build", name, sources, ("-O2", "-pthread", f"-I{VGPU}", *flags), besides=_list_headers()
    )


def build_cuda_talk() -> Path:
    """A program that knows the driver only, as those of containers do."""
    return compile_once(HERE / "build", "cuda_talk", [HERE / "src" / "cuda_talk.c"], ("-O1", "-ldl"))


def build_real_say() -> Path:
    """A program that reads the C library's symbol table."""
    sources = [HERE / "src" / "real_say.c", VGPU / "real.c"]
    return compile_once(HERE / "build", "real_say", sources, ("-O2", f"-I{VGPU}", "-ldl"), besides=_list_headers())


def build_in_front() -> Path:
    """A library that has `dlsym` for itself."""
    return compile_once(HERE / "build", "in_front.so", [HERE / "src" / "in_front.c"], ("-shared", "-fPIC"))
