"""A constructor takes few arguments: values that belong together come as one."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("nodeagent", "nodeagent_sim")
ARGUMENTS_MAX = 8
"""Without `self`."""


def find_crowded(source: str) -> Iterator[tuple[str, int]]:
    """The classes whose constructor takes too many arguments, each with their number."""
    for each in ast.walk(ast.parse(source)):
        if not isinstance(each, ast.ClassDef):
            continue
        for function in each.body:
            if isinstance(function, ast.FunctionDef) and function.name == "__init__":
                arguments = function.args
                count = len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs) - 1
                if count > ARGUMENTS_MAX:
                    yield each.name, count


def test_no_constructor_takes_nine_arguments() -> None:
    """Whoever adds the ninth argument finds the values that a reader thinks of as one, and gives these a name."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    found = {path.relative_to(ROOT).as_posix(): dict(find_crowded(path.read_text("utf-8"))) for path in paths}
    assert {path: classes for path, classes in found.items() if classes} == {}


def test_a_planted_constructor_is_seen() -> None:
    """Arguments count whether given by position or by name; `self` does not."""
    eight = ", ".join(f"a{number}" for number in range(8))
    assert list(find_crowded(f"class A:\n    def __init__(self, {eight}): ...")) == []
    assert list(find_crowded(f"class A:\n    def __init__(self, {eight}, *, b): ...")) == [("A", 9)]
