"""docs/architecture.md says where a line of code lives: its rooms are the folders, no more and no fewer."""

import ast
import re
from pathlib import Path

from nodeagent.model.events import STATES
from tests.generators.states import COMPONENTS, SAID_BY, list_looked_at, publishes

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"


def read_page() -> str:
    return PAGE.read_text(encoding="utf-8")


def list_rooms(page: str) -> set[str]:
    """The floors that the table of rooms sends people to."""
    _, _, after = page.partition("| My line… | lives in |\n")
    rows = [line for line in after.partition("\n\n")[0].splitlines() if not line.startswith("| ---")]
    return {place.partition("/")[0] for row in rows for place in re.findall(r"`([^`]+)`", row.split("|")[2])}


def list_test_folders(page: str) -> set[str]:
    _, _, after = page.partition("```\ntests/\n")
    return set(re.findall(r"^  (\w+)/", after.partition("```")[0], re.MULTILINE))


def list_components(page: str) -> dict[str, bool]:
    """Who is in the table of components, and whether it says that the agent cannot live without."""
    _, _, after = page.partition("| Component | needs | opens | vital |\n| --- | --- | --- | --- |\n")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in after.partition("\n\n")[0].splitlines()]
    return {name: vital == "yes" for names, _, _, vital in rows for name in names.split(", ")}


def list_pictured(page: str) -> list[str]:
    """The words of the picture of the agent, each as often as it stands there."""
    (picture,) = (block for block in re.findall(r"```\n(.*?)```", page, re.DOTALL) if "edge/nvml " in block)
    return re.findall(r"[\w/]+", picture)


def find_specified() -> dict[str, bool]:
    """Components that the composition root names, and whether they are vital."""
    calls = [
        node
        for path in (ROOT / "nodeagent" / "app").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "ComponentSpec"
    ]
    return {
        str(call.args[0].value): any(word.arg == "vital" for word in call.keywords)
        for call in calls
        if isinstance(call.args[0], ast.Constant)
    }


def find_folders(place: Path) -> set[str]:
    """Those that hold anything but what Python left of files that are gone."""
    return {
        each.name
        for each in place.iterdir()
        if each.is_dir() and any(path.is_file() and path.parent.name != "__pycache__" for path in each.rglob("*"))
    }


def test_the_table_of_rooms_is_equal_to_the_folders() -> None:
    """A floor that is built, or taken away, is told on the page that newcomers read first."""
    assert list_rooms(read_page()) == find_folders(ROOT / "nodeagent")


def test_the_tree_of_the_tests_is_equal_to_the_folders() -> None:
    """As with the package, so that one finds where a test belongs."""
    assert list_test_folders(read_page()) == find_folders(ROOT / "tests")


def test_the_table_of_components_is_equal_to_the_folders_and_to_what_is_composed() -> None:
    """Every part has a row, and the row says of its life what the composition root says."""
    rows = list_components(read_page())
    assert rows.keys() == find_folders(ROOT / "nodeagent" / "components")
    # Users know the component of node requests by an older name: in metrics, logs and commands.
    folders = {"wishes": "node_requests"}
    assert rows == {folders.get(name, name): is_vital for name, is_vital in find_specified().items()}


def test_the_picture_has_each_component_once() -> None:
    """And the neighbours' rooms below it are there."""
    words = list_pictured(read_page())
    assert [part for part in find_folders(ROOT / "nodeagent" / "components") if words.count(part) != 1] == []
    rooms = {word for word in words if word.startswith("edge/")}
    assert rooms < {f"edge/{room}" for room in find_folders(ROOT / "nodeagent" / "edge")}
    assert len(rooms) == 6


def test_each_state_is_said_by_one_component_that_publishes_it() -> None:
    """The table of states has all that travel, and none that nobody could say."""
    assert SAID_BY.keys() == set(STATES)
    assert [state for state, part in SAID_BY.items() if not publishes(COMPONENTS / part, state.__name__)] == []


def test_who_looks_at_a_state_is_read_from_the_code(tmp_path: Path) -> None:
    """Classes that are passed on count, in lists as well; what is made, or is a type, does not."""
    (tmp_path / "component.py").write_text(
        "SEEN = (Inventory, Unknown)\n"
        "def run(self, said: Offering) -> PartTable:\n"
        "    self.bus.latest(DriverState).value[MigState]\n"
        "    kept: list[ClaimBook] = CdiState(files=())\n"
    )
    assert list_looked_at(tmp_path) == {"Inventory", "DriverState"}


def test_a_room_without_a_folder_is_seen() -> None:
    """The readers of the page are themselves right: a made-up room and a missing folder show."""
    table = "| My line… | lives in |\n| --- | --- |\n| hums | `cellar/<shelf>/`, `attic/` |\n"
    page = f"{table}\n```\ntests/\n  unit/   x\n```\n"
    assert list_rooms(page) == {"cellar", "attic"}
    assert list_test_folders(page) == {"unit"}
