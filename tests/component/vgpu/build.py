"""What these tests run: the library, and programs that use it or parts of it."""

from pathlib import Path
from typing import Final

from tests.support.compiled import compile_once
from tests.support.native import NATIVE

HERE: Final = Path(__file__).parent
VGPU: Final = NATIVE / "vgpu"
_LEDGER: Final = ("files.c", "fork.c", "identity.c", "ledger.c", "log.c")


def _list_headers() -> list[Path]:
    return sorted([*VGPU.glob("*.h"), *(NATIVE / "include").glob("*.h")])


def build_ledger_race(*flags: str) -> Path:
    """The program of that name, with the ledger and nothing else of the library."""
    sources = [HERE / "src" / "ledger_race.c", *(VGPU / name for name in _LEDGER)]
    return compile_once(
        HERE / "build", "ledger_race", sources, ("-O2", "-pthread", f"-I{VGPU}", *flags), besides=_list_headers()
    )
