"""How the agent loads its modules: each import stands at the top of its module, and libraries are entered as they are.

Loading late and stand-ins for modules have made crashes that no test saw, for a tenth of a second at a start.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import nodeagent

ROOT = Path(nodeagent.__file__).parent
INSIDE = {
    "__main__.py": "the first process of a container has no handler for SIGTERM until the program sets one",
    "app/optional_components.py": "repairs are off on most nodes, which carry nothing of them; loaded with the table",
    "components/web/page/overview.py": "as the table of components: nothing of repairs is loaded where they are off",
    "app/hardware.py": "whoever builds real hardware needs the type that stands here",
    "edge/host/driver/library_search.py": "the GPU worker shares the module, and the library is nearly always found",
    "edge/nvml/worker/launch.py": "the worker's memory: its modules are loaded among stand-ins",
}
"""Modules that import inside functions, by reason; optional dependencies aside."""
DYNAMIC = {
    "app/simulator.py": "a command names the function that runs it; the simulator may not be installed",
    "core/log/lines.py": "structlog takes rich along where rich happens to be installed",
    "edge/nvml/worker/launch.py": INSIDE["edge/nvml/worker/launch.py"],
}
"""Modules that import by name or change the table of modules, by reason."""


def read_tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def list_inner_imports(tree: ast.Module) -> Iterator[str]:
    """The modules imported inside functions."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.ImportFrom):
                    yield str(node.module)
                elif isinstance(node, ast.Import):
                    yield from (one.name for one in node.names)


def is_dynamic(tree: ast.Module) -> bool:
    """Whether a module imports by a computed name, or puts modules into the interpreter's table."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    attributes = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return bool(
        {"import_module", "__import__", "LazyLoader", "importlib.import_module", "sys.modules"} & (names | attributes)
    )


def list_files() -> Iterator[tuple[str, Path]]:
    for path in sorted(ROOT.rglob("*.py")):
        yield str(path.relative_to(ROOT)), path


@pytest.mark.long
def test_imports_stand_at_the_top_of_their_modules() -> None:
    """All modules load before the first line of work; a missing name shows at once, on every node."""
    found = {name: inner for name, path in list_files() if (inner := list(list_inner_imports(read_tree(path))))}
    assert sorted(found) == sorted(INSIDE)


@pytest.mark.long
def test_modules_are_imported_by_the_interpreter_alone() -> None:
    """Nobody puts a package of his own under a library's name, or enters a package past its `__init__`."""
    assert sorted(name for name, path in list_files() if is_dynamic(read_tree(path))) == sorted(DYNAMIC)


def test_a_planted_import_is_found() -> None:
    """Inside a function, a method and a coroutine, in either form."""
    tree = ast.parse("class A:\n def b(self):\n  import c.d\nasync def e():\n from f import g\nimport h\n")
    assert sorted(list_inner_imports(tree)) == ["c.d", "f"]
    assert is_dynamic(ast.parse("import sys\nsys.modules['a'] = None"))
    assert is_dynamic(ast.parse("from importlib import import_module\nimport_module('a')"))
    assert not is_dynamic(tree)
