"""Which functions of the agent speak to the API server: as the source has them, and as a test has seen them do it."""

import ast
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

import nodeagent
from nodeagent.edge.kube.client import KubeClient
from nodeagent.edge.kube.fleet import FleetWatch
from nodeagent.edge.kube.follow import Follower

PACKAGE = Path(nodeagent.__file__).parent
_METHODS = ("request", "fetch", "watch")
_FOLLOWERS = ("Follower", "FleetWatch")


def find_callers() -> set[str]:
    """Functions that call a client of the API server or have one call again and again, as `module:name`."""
    found: set[str] = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text()
        if "KubeClient" in text:
            module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
            found |= {
                f"{module}:{name}" for name in _find_in(ast.parse(text), "") if not name.startswith("KubeClient.")
            }
    return found


def _find_in(tree: ast.AST, prefix: str) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _find_in(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            calls = [each.func for each in ast.walk(node) if isinstance(each, ast.Call)]
            if any(map(_is_request, calls)):
                yield f"{prefix}{node.name}"


def _is_request(called: ast.expr) -> bool:
    if isinstance(called, ast.Name):
        return called.id in _FOLLOWERS
    if not isinstance(called, ast.Attribute) or called.attr not in _METHODS:
        return False
    owner = called.value
    name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
    return name.lstrip("_") == "client"


@contextmanager
def recorded_callers() -> Iterator[set[str]]:
    """The functions that do so while the block lasts."""
    seen: set[str] = set()

    def record(code: CodeType) -> None:
        path = Path(code.co_filename)
        if path.is_relative_to(PACKAGE):
            module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
            seen.add(f"{module}:{code.co_qualname}")

    def wrap(owner: type, name: str, patch: pytest.MonkeyPatch) -> None:
        original = getattr(owner, name)

        def called(*arguments: Any, **named: Any) -> Any:
            record(sys._getframe(1).f_code)
            return original(*arguments, **named)

        patch.setattr(owner, name, called)

    with pytest.MonkeyPatch.context() as patch:
        for name in _METHODS:
            wrap(KubeClient, name, patch)
        for owner in (Follower, FleetWatch):
            wrap(owner, "__init__", patch)
        yield seen
