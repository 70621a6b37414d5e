"""The rows of what each layer costs to load."""

from pathlib import Path

import pytest

import nodeagent
from tests.bench.pieces.imports import LAYERS, list_modules, measure

ROOT = Path(nodeagent.__file__).parent


def test_every_layer_has_its_rows() -> None:
    """Each edge, each component, and what they stand on; the command line and what is in C are not in the agent."""
    floors = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    rooms = floors - {"cli", "native", "edge", "components"}
    for floor in ("edge", "components"):
        rooms |= {f"{floor}.{path.name}" for path in (ROOT / floor).iterdir() if (path / "__init__.py").exists()}
    assert set(LAYERS) == rooms


def test_a_package_is_loaded_with_all_that_is_in_it() -> None:
    """Also what lies deeper, but not what only commands and children load."""
    config = list_modules("nodeagent.config")
    assert {"nodeagent.config", "nodeagent.config.load", "nodeagent.config.sections.agent"} <= set(config)
    assert not [name for name in config if "imports" in name]
    assert list_modules("nodeagent.edge.nvml.agent.client") == ["nodeagent.edge.nvml.agent.client"]


@pytest.mark.long
def test_each_layer_has_time_and_memory() -> None:
    """What the whole costs is the sum, and more than the bare interpreter."""
    rows = {row.name: row.samples for row in measure(1)}
    assert len(rows) == 2 * (1 + len(LAYERS) + 1)
    for kind in ("CPU", "RSS"):
        (whole,), (bare,) = rows[f"load everything, {kind}"], rows[f"load interpreter, {kind}"]
        assert whole > bare > 0
