"""Protocols that only one class implements are found, and those that a wall needs are not."""

from pathlib import Path

import pytest

from tests.architecture.house.names import PACKAGES
from tests.architecture.house.protocols import find_singles, may_import
from tests.architecture.house.report import SHORT_FILES_MAX, SINGLES_MAX, list_short
from tests.architecture.house.test_words import make_package

PLACES = [Path(__file__).parents[3] / name for name in PACKAGES]

PROTOCOL = "from typing import Protocol\nclass Writes(Protocol):\n    def write(self) -> None: ...\n"
WRITER = "class Writer:\n    def __init__(self):\n        self.place = 1\n    def write(self) -> None: ...\n"


def find(root: Path, files: dict[str, str]) -> list[tuple[str, str]]:
    return [(one.protocol.name, one.implementation.name) for one in find_singles(make_package(root, files))]


def test_short_files_are_no_more_than_have_been_reached() -> None:
    """A short file that comes joins what it serves."""
    assert sum(len(list_short(place)) for place in PLACES) <= SHORT_FILES_MAX


@pytest.mark.long
def test_needless_protocols_are_no_more_than_have_been_reached() -> None:
    """A class that stands in nobody's way is named itself."""
    singles = [(one.protocol.name, one.implementation.name) for one in find_singles(*PLACES)]
    assert len(singles) <= SINGLES_MAX, singles


def test_a_short_file_is_counted(tmp_path: Path) -> None:
    """Thirty-nine lines are short, forty are not."""
    package = make_package(tmp_path, {"core/short.py": "a = 1\n" * 39, "core/long.py": "a = 1\n" * 40})
    assert [path.name for path in list_short(package)] == ["short.py"]


def test_a_protocol_with_one_implementation_that_its_user_may_import_is_found(tmp_path: Path) -> None:
    """The class could stand in the protocol's place, from wherever the protocol is handed on."""
    user = "from nodeagent.model.ports import Writes\n"
    files = {"model/ports/files.py": PROTOCOL, "edge/host/writer.py": WRITER}
    assert find(tmp_path, {**files, "components/cdi/component.py": user}) == [("Writes", "Writer")]


def test_a_wall_keeps_its_protocol(tmp_path: Path) -> None:
    """A pure file of a component may not import an edge."""
    user = "from nodeagent.model.ports.files import Writes\n"
    files = {"model/ports/files.py": PROTOCOL, "edge/host/writer.py": WRITER}
    assert find(tmp_path, {**files, "components/cdi/decide.py": user}) == []


def test_two_implementations_keep_a_protocol(tmp_path: Path) -> None:
    """Inherited methods and attributes that are given in a method count as a class's own."""
    protocol = PROTOCOL + "    place: int\n"
    second = "from nodeagent.edge.host.writer import Writer\nclass Second(Writer): ...\n"
    files = {"edge/host/writes.py": protocol, "edge/host/writer.py": WRITER}
    assert find(tmp_path / "one", files) == [("Writes", "Writer")]
    assert find(tmp_path / "two", {**files, "edge/host/second.py": second}) == []


@pytest.mark.parametrize(
    ("user", "owner", "may"),
    [
        ("components.mig.component", "edge.kube.node", True),
        ("components.mig.plan", "core.clock", False),
        ("components.mig.labels_task", "core.clock", True),
        ("components.mig.plan", "components.mig.steps", True),
        ("components.mig.plan", "components.mps.steps", False),
        ("edge.kube.node", "edge.host.files", True),
        ("edge.host.files", "edge.kube.node", False),
        ("core.clock", "model.gpu", False),
        ("model.gpu", "edge.host.files", False),
        ("extender.program", "edge.kube.node", True),
    ],
)
def test_the_walls_are_those_of_the_contracts(user: str, owner: str, may: bool) -> None:
    """What may import what, as `docs/architecture.md` has it."""
    assert may_import(tuple(user.split(".")), tuple(owner.split("."))) is may
