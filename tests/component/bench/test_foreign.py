"""Another device plugin under our rows, as a process of its own that shares nothing with the agent."""

import sys
from pathlib import Path

import pytest

from tests.bench.whole import foreign


@pytest.mark.nightly
@pytest.mark.parametrize("is_fixed", [False, True])
def test_a_foreign_plugin_has_every_row(short_dir: Path, is_fixed: bool) -> None:
    """Registration, admission of 1, 4 and 8, processor time and memory; also where its directory cannot be chosen."""
    directory = short_dir / "kubelet" if is_fixed else None
    place = str(directory) if is_fixed else "{dir}"
    rows = {
        row.name: row
        for row in foreign.measure(f"{sys.executable} -m tests.bench.example_plugin {place}", directory, rounds=1)
    }
    pods = [f"the first {foreign.FIRST}, 1 of 8", *(f"{size} of 8" for size in foreign.SIZES)]
    admitted = [row for one in pods for row in (f"prefer + Allocate, {one}", f"  Allocate alone, {one}")]
    assert rows.keys() == {
        "exec to Register",
        "exec to advertised",
        *admitted,
        *(f"  processor time of the plugin each, {size}" for size in foreign.SIZES),
        "memory, PSS",
        "memory, RSS",
    }
    assert {len(rows[name].samples) for name in admitted} == {foreign.FIRST, foreign.ROUNDS_EACH}
    assert all(row.percentile(0.5) > 0 for name, row in rows.items() if "processor" not in name)


def test_a_plugin_that_does_not_run_is_said_so(tmp_path: Path) -> None:
    """Nobody waits for the registration of a command that has ended."""
    with pytest.raises(foreign.PluginEnded, match="ended with 3"):
        foreign.measure(f"{sys.executable} -c 'raise SystemExit(3)'", None, rounds=1)


@pytest.mark.nightly
def test_agent_and_plugin_are_compared_in_turns() -> None:
    """Each row that both have, once as median and once as 99th percentile, with its ratio."""
    told = foreign.compare(f"{sys.executable} -m tests.bench.example_plugin {{dir}}", None, rounds=1, pairs=1)
    for size in foreign.SIZES:
        rows = [line for line in told.splitlines() if line.startswith(f"prefer + Allocate, {size} of 8")]
        assert len(rows) == len(foreign.SHARES)
        assert all("ms" in row.split() for row in rows)


def test_shares_need_a_plugin_that_can_be_told() -> None:
    """Else the agent with shares would be compared with a plugin that has none."""
    with pytest.raises(foreign.SharesUntold, match=r"has no \{config\}"):
        foreign.compare("plugin {dir}", None, rounds=1, pairs=1, shares=100)
