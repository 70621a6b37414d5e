"""Components share by `rules`, `core` and `model`, not by copying: no passage of six lines stands in two of them."""

import textwrap
from pathlib import Path

import pytest

from tests.architecture.passages import LENGTH, find_shared, read_lines, read_rooms

ROOT = Path(__file__).parents[2]
PASSAGE = [f"step_{number}(self.place, {number})" for number in range(LENGTH)]


def test_no_passage_stands_in_two_components() -> None:
    """What two parts need alike has a place that both may import."""
    shared = find_shared(read_rooms(ROOT / "nodeagent" / "components"))
    assert [[f"{line.place}:{line.number}" for line in places] for places in shared.values()] == []


def write(root: Path, room: str, lines: list[str]) -> None:
    file = root / room / "component.py"
    file.parent.mkdir(exist_ok=True)
    body = textwrap.indent("\n".join(lines), "    ")
    file.write_text(f"def act_{room}(self):\n{body}\n", encoding="utf-8")


def test_a_planted_passage_is_found_with_its_places(tmp_path: Path) -> None:
    """Deeper in, with a comment and a blank line between its lines, it is the same passage."""
    write(tmp_path, "one", ["before()", *PASSAGE])
    write(
        tmp_path, "other", ["if self.wanted:", *(f"    {line}" for line in ["# why", *PASSAGE[:3], "", *PASSAGE[3:]])]
    )
    (places,) = find_shared(read_rooms(tmp_path)).values()
    assert [(line.place, line.number) for line in places] == [("one/component.py", 3), ("other/component.py", 4)]


def test_what_stands_twice_in_one_room_is_its_own_affair(tmp_path: Path) -> None:
    """Only between rooms is nobody else to see it."""
    write(tmp_path, "one", [*PASSAGE, "between()", *PASSAGE])
    write(tmp_path, "other", PASSAGE[1:])
    assert find_shared(read_rooms(tmp_path)) == {}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([f"import module_{number}" for number in range(LENGTH)], []),
        (["from module import (", *(f"    name_{number}," for number in range(LENGTH)), ")"], []),
        ([f"act({'[' * LENGTH}", "1", *("]" for _ in range(LENGTH)), ")"], [f"act({'[' * LENGTH}", "1"]),
        (
            ["def act(", *(f"    name_{number}: int," for number in range(LENGTH)), "):", "    go()"],
            ["def act(", "go()"],
        ),
        (['"""Says', *(f"line {number}" for number in range(LENGTH)), '"""'], []),
    ],
    ids=["modules", "names", "brackets", "parameters", "docstring"],
)
def test_what_says_nothing_is_no_part_of_a_passage(lines: list[str], said: list[str]) -> None:
    """Two files may import the same, be built of the same, and close as many brackets."""
    assert [line.text for line in read_lines("a.py", "\n".join(lines))] == said
