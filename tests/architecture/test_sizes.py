"""What one reads at once: the length of a file and the number of files in a folder, docs/architecture.md, chapter 1.

And the arguments of a constructor: values that belong together come as one.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES = 400
GLANCE = 20
ARGUMENTS = 8
"""Of a constructor, without `self`."""
KINDS = (".py", ".c", ".h")
GENERATED = ("_pb2.py", "_grpc.py")
"""What `make generate` writes of the protocols: nobody reads it."""
MADE = ("__pycache__", "build", "built")
"""Folders of what was compiled."""
CROWDED = {
    "nodeagent/model": "a noun each, found by its name; what travels together has a folder already",
    "tests/integration": "a scenario of the real cluster each; what carries them is in folders",
}
"""Folders that are larger than a glance, and why they stay so."""


def list_written(root: Path) -> list[Path]:
    """Sources that people wrote, from the root on."""
    return [
        place
        for floor in ("nodeagent", "nodeagent_sim", "tests", "deploy")
        for path in sorted((root / floor).rglob("*"))
        if path.suffix in KINDS
        and not path.name.endswith(GENERATED)
        and not set((place := path.relative_to(root)).parts) & set(MADE)
    ]


def find_long(root: Path) -> dict[str, int]:
    """Files that are longer than they may be, with their lines."""
    lengths = {str(path): len((root / path).read_text(encoding="utf-8").splitlines()) for path in list_written(root)}
    return {name: length for name, length in lengths.items() if length > LINES}


def find_crowded(root: Path) -> dict[str, int]:
    """Folders with more files than one sees at a glance; a package's own `__init__.py` is no file of it."""
    counts = Counter(str(path.parent) for path in list_written(root) if path.name != "__init__.py")
    return {name: count for name, count in counts.items() if count > GLANCE}


def find_laden(source: str) -> Iterator[tuple[str, int]]:
    """The classes whose constructor takes too many arguments, each with their number."""
    for each in ast.walk(ast.parse(source)):
        if not isinstance(each, ast.ClassDef):
            continue
        for function in each.body:
            if isinstance(function, ast.FunctionDef) and function.name == "__init__":
                arguments = function.args
                count = len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs) - 1
                if count > ARGUMENTS:
                    yield each.name, count


def test_no_file_is_longer_than_one_reads_at_once() -> None:
    """Whoever adds the line that is one too many divides the file by what changes together."""
    assert list_written(ROOT)
    assert find_long(ROOT) == {}


def test_no_folder_is_larger_than_a_glance_but_those_that_are_named() -> None:
    """Neither may one grow unseen, nor one be excused that no longer needs it."""
    assert find_crowded(ROOT).keys() == CROWDED.keys()


def test_a_planted_file_and_a_planted_folder_are_seen(tmp_path: Path) -> None:
    """One line too many, one file too many; not what is generated or compiled, and not a package's own file."""
    room = tmp_path / "nodeagent" / "room"
    (room / "build").mkdir(parents=True)
    for number in range(GLANCE):
        (room / f"file_{number}.py").write_text("line\n" * LINES, encoding="utf-8")
    for name in ("__init__.py", "wire_pb2.py", "wire_grpc.py", "build/made.c"):
        (room / name).write_text("line\n" * LINES * 2 if name != "__init__.py" else "", encoding="utf-8")
    assert (find_long(tmp_path), find_crowded(tmp_path)) == ({}, {})
    (room / "hook.c").write_text("line\n" * (LINES + 1), encoding="utf-8")
    assert find_long(tmp_path) == {"nodeagent/room/hook.c": LINES + 1}
    assert find_crowded(tmp_path) == {"nodeagent/room": GLANCE + 1}


@pytest.mark.long
def test_no_constructor_takes_nine_arguments() -> None:
    """Whoever adds the ninth argument finds the values that a reader thinks of as one, and gives these a name."""
    paths = [path for path in list_written(ROOT) if path.suffix == ".py" and path.parts[0].startswith("nodeagent")]
    found = {str(path): dict(find_laden((ROOT / path).read_text(encoding="utf-8"))) for path in paths}
    assert {path: classes for path, classes in found.items() if classes} == {}


def test_a_planted_constructor_is_seen() -> None:
    """Arguments count whether given by position or by name; `self` does not."""
    eight = ", ".join(f"a{number}" for number in range(8))
    assert list(find_laden(f"class A:\n    def __init__(self, {eight}): ...")) == []
    assert list(find_laden(f"class A:\n    def __init__(self, {eight}, *, b): ...")) == [("A", 9)]
