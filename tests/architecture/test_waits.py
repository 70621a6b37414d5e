"""Who waits for something to be so compares what is seen with what is to be, never with what was seen before.

What is waited for may have come while the call that brings it was still under way: a wait for "another one than the one
that I know" then waits for one that never comes. So no question that is asked again and again until it is answered with
yes compares states by which object they are, or by their number.
"""

import ast
import builtins
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NUMBERS = {"seq", "generation"}
"""By which states follow one another."""


def find_waits_for_another(text: str) -> Iterator[int]:
    """Lines at which a question within a function, or the condition of a loop that waits, asks for another one."""
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                for question in _list_questions(node, function):
                    compares = (each for each in ast.walk(question) if isinstance(each, ast.Compare))
                    yield from (each.lineno for each in compares if _asks_for_another(each))


def _list_questions(node: ast.AST, function: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Lambda) or (isinstance(node, ast.FunctionDef) and node is not function):
        yield node
    elif isinstance(node, ast.While) and any(isinstance(each, ast.Await) for each in ast.walk(node)):
        yield node.test


def _asks_for_another(node: ast.Compare) -> bool:
    sides = [node.left, *node.comparators]
    if any(isinstance(side, ast.Attribute) and side.attr in NUMBERS for side in sides):
        return True
    is_identity = any(isinstance(each, ast.Is | ast.IsNot) for each in node.ops)
    return is_identity and not any(_is_fixed(side) for side in sides)


def _is_fixed(side: ast.expr) -> bool:
    """A constant, a member of an enumeration, a class: `None`, `Phase.MADE`, `bool`."""
    if isinstance(side, ast.Name):
        return side.id in dir(builtins)
    return isinstance(side, ast.Constant) or (isinstance(side, ast.Attribute) and side.attr.isupper())


@pytest.mark.parametrize(
    "text",
    [
        "async def f():\n    await wait_until(lambda: read(Inventory) is not known)",
        "async def f():\n    def is_so():\n        return latest.seq > before\n    await wait_until(is_so)",
        "async def f():\n    while latest.generation == before:\n        await wait()",
    ],
)
def test_a_wait_for_another_one_is_found(text: str) -> None:
    """By what it is, by its number, in a loop."""
    assert list(find_waits_for_another(text))


def test_a_wait_for_what_is_said_is_not_found() -> None:
    """Nor one that asks whether there is anything."""
    assert not list(find_waits_for_another("async def f():\n    await wait_until(lambda: find() is not None)"))


def test_nobody_waits_for_another_one() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for folder in ("components", "app")
        for path in sorted((ROOT / "nodeagent" / folder).rglob("*.py"))
        for line in find_waits_for_another(path.read_text())
    ]
    assert not found, "compare what is seen with what is to be"
