"""The plugin in Go that does nothing: it builds with its pinned modules, and the bench measures it as any other."""

import subprocess
from pathlib import Path

import pytest

from tests.bench.whole import foreign

MODULE = Path(__file__).parents[1] / "bench" / "idle"

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def test_a_plugin_in_go_has_its_rows(tmp_path: Path) -> None:
    """So that whoever doubts the floor in docs/performance.md can take it."""
    program = tmp_path / "idle"
    subprocess.run(["go", "build", "-mod=readonly", "-o", program, "."], cwd=MODULE, check=True)
    rows = {row.name: row for row in foreign.measure(f"{program} {{dir}}", None, rounds=1)}
    assert len(rows["prefer + Allocate, 8 of 8"].samples) == foreign.ROUNDS_EACH
