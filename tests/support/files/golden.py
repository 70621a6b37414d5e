"""Golden files: what the code must render, kept beside the tests; `UPDATE_GOLDEN=1` writes them anew."""

import os
from pathlib import Path

GOLDEN = Path(__file__).parents[2] / "golden"


def check_golden(name: str, content: str) -> None:
    """The content equals the golden file of that name."""
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    assert content == path.read_text(encoding="utf-8"), f"{name} differs; look at it, then UPDATE_GOLDEN=1"
