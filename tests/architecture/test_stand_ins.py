"""Each stand-in is named on the page that says where its answers are known from, by tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "development" / "stand-ins.md"
FAKES, SIMULATED = ROOT / "tests" / "fakes", ROOT / "nodeagent_sim"


def list_stand_ins() -> list[str]:
    """The modules and packages of `tests/fakes`, and what the simulation plays besides GPUs and their machine."""
    fakes = [path.stem for path in FAKES.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    programs = [path.parent.name for path in SIMULATED.glob("*/__main__.py")]
    return sorted({*fakes, *programs, "mps"} - {"__init__"})


def test_each_stand_in_is_named() -> None:
    """A new one fails here until the page says of what it is one, and where its answers are known from."""
    text = PAGE.read_text()
    words = {word for quoted in re.findall(r"`([^`]+)`", text) for word in quoted.split("/")}
    assert [name for name in list_stand_ins() if name not in words] == []


def test_tests_that_the_page_names_are_there() -> None:
    """An answer is known from no test that went away."""
    there = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    named = {Path(each).name for each in re.findall(r"`([\w/.-]*test_\w+\.py)`", PAGE.read_text())}
    assert named
    assert sorted(named - there) == []
