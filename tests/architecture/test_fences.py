"""The house rules that import-linter cannot say: docs/architecture.md, chapter 2."""

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import nodeagent

ROOT = Path(nodeagent.__file__).parent
SIMULATOR = "nodeagent_sim"
"""What no module of the agent imports; test_planted_imports.py plants it."""
PACKAGES = (ROOT, ROOT.parent / SIMULATOR)
MODULES = sorted(path.relative_to(ROOT.parent) for package in PACKAGES for path in package.rglob("*.py"))

FENCES: dict[str, tuple[str, ...]] = {
    "pynvml": ("nodeagent/edge/nvml/worker/",),
    # Beside its house: the stand-in kubelet, and the stubs generated for it.
    "grpclib": (
        "nodeagent/edge/grpc/",
        "nodeagent_sim/kubelet/",
        "nodeagent/edge/kubelet/proto/",
        "nodeagent/edge/gpu_manager/proto/",
        "nodeagent/edge/nvsentinel/proto/",
    ),
    "h2": ("nodeagent/edge/grpc/",),
    "hpack": ("nodeagent/edge/grpc/",),
    "google.protobuf": (
        "nodeagent/edge/grpc/",
        "nodeagent/edge/kubelet/",
        "nodeagent_sim/kubelet/",
        "nodeagent/edge/gpu_manager/",
        "nodeagent/edge/nvsentinel/",
    ),
    "kubernetes_asyncio": ("nodeagent/edge/kube/kubeconfig/child.py",),
    "aiohttp": ("nodeagent/edge/http/", "nodeagent/edge/kube/"),
    "bcrypt": ("nodeagent/edge/http/",),
    "structlog": ("nodeagent/core/log/lines.py",),
    # Read without bounds, YAML from outside ends the process; written, it is harmless.
    "yaml": ("nodeagent/model/yaml_text.py", "nodeagent/config/yaml_tree.py", "nodeagent/config/imports/render.py"),
}
"""Which third party may be imported where."""

CORE_MAY_IMPORT = ("anyio", "msgspec", "structlog", "nodeagent")
MODEL_MAY_IMPORT = ("msgspec", "nodeagent", "yaml")
RULES_MAY_IMPORT = ("msgspec", "nodeagent")

PURE = ("nodeagent/components/", "nodeagent/rules/", "nodeagent/extender/")
WAITING = re.compile(r"nodeagent/components/(\w+/)+(component|\w+_task)\.py")
"""The modules of components that may wait and touch the world, by the end of their names."""
EXTENDER_SHELL = tuple(
    f"nodeagent/extender/{name}.py" for name in ("watches", "program", "replica", "service", "trust/files", "wire")
)
"""What is not pure of the extender: it watches, writes, serves, and reads what came over the wire."""
OUTSIDE = ("nodeagent.edge", "nodeagent.core", "anyio", "asyncio")
RECORDS = "nodeagent.core.values"
"""The one module of the core that pure files of components know."""
WORLD = ("io", "os", "pathlib", "random", "socket", "subprocess", "threading", "time")
"""Rules do not even know these: what they answer follows from what they are given."""

BUDGETS: dict[str, tuple[str, ...]] = {
    "nodeagent.core.children.frames": (
        "anyio",
        "asyncio",
        "structlog",
        "logging",
        "subprocess",
        "typing",
        "dataclasses",
    ),
    "nodeagent.core.children.child_setup": ("anyio", "asyncio", "structlog", "logging", "subprocess", "dataclasses"),
    "nodeagent.core.channels.bus": (
        "structlog",
        "aiohttp",
        "grpclib",
        "google",
        "kubernetes_asyncio",
        "yaml",
        "pynvml",
    ),
    "nodeagent.core.values": ("anyio", "asyncio", "structlog", "logging", "subprocess"),
    "nodeagent.core.life.supervisor": ("structlog", "aiohttp", "grpclib", "google", "kubernetes_asyncio", "yaml"),
}
"""What importing a module must not bring along."""


def imports(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def fence_breaks(path: str, source: str) -> list[str]:
    return [
        name
        for name in imports(source)
        for package, rooms in FENCES.items()
        if is_within(name, package) and not path.startswith(rooms)
    ]


def impure_imports(path: str, source: str) -> list[str]:
    if not path.startswith(PURE) or WAITING.fullmatch(path) or path in EXTENDER_SHELL:
        return []
    is_rule = path.startswith("nodeagent/rules/")
    outside = OUTSIDE + (WORLD if is_rule else ())
    found = (name for name in imports(source) if any(is_within(name, each) for each in outside))
    return [name for name in found if is_rule or not is_within(name, RECORDS)]


def foreign_imports(source: str, allowed: tuple[str, ...]) -> list[str]:
    tops = {name.partition(".")[0] for name in imports(source)}
    return sorted(top for top in tops if top not in allowed and top not in sys.stdlib_module_names)


@pytest.mark.parametrize("find", [fence_breaks, impure_imports])
def test_every_module_keeps_to_its_room(find: Callable[[str, str], list[str]]) -> None:
    """A third party is imported only where it is translated; in components only `component.py` and tasks do."""
    found = {path.as_posix(): find(path.as_posix(), (ROOT.parent / path).read_text()) for path in MODULES}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("room", "allowed"), [("core", CORE_MAY_IMPORT), ("model", MODEL_MAY_IMPORT), ("rules", RULES_MAY_IMPORT)]
)
def test_shared_floors_import_next_to_nothing(room: str, allowed: tuple[str, ...]) -> None:
    """Core, model and rules live on the standard library and the few listed."""
    found = {path.name: foreign_imports(path.read_text(), allowed) for path in (ROOT / room).rglob("*.py")}
    assert {name: names for name, names in found.items() if names} == {}


def test_the_simulator_is_asked_for_in_one_place() -> None:
    """The list of commands names what it runs; every other way leads through the module that knows of a missing one."""
    naming = [path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py") if SIMULATOR in path.read_text()]
    assert sorted(naming) == ["app/simulator.py", "cli/commands/agent.py", "cli/commands/shared.py"]


def test_every_module_says_why_it_exists() -> None:
    """A module has a docstring, unless it is empty or generated."""
    sources = {path: (ROOT.parent / path).read_text() for path in MODULES}
    written = {
        path: text for path, text in sources.items() if text.strip() and not path.stem.endswith(("_pb2", "_grpc"))
    }
    assert [path.as_posix() for path, text in written.items() if not ast.get_docstring(ast.parse(text))] == []


def list_needed(tree: ast.AST, modules: Collection[str]) -> Iterator[str]:
    """The modules of ours that a module imports as it is loaded: not in functions, not for types alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in modules else str(node.module) for name in inner)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from list_needed(ast.Module(node.orelse, []), modules)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from list_needed(node, modules)


def sort_imports(sources: Mapping[str, str]) -> list[str]:
    """An order in which every module comes after those that it imports.

    Raises:
        CycleError: There is none.
    """
    needed = {name: {*list_needed(ast.parse(text), sources)} for name, text in sources.items()}
    return [*TopologicalSorter(needed).static_order()]


@pytest.mark.long
def test_every_module_imports_alone() -> None:
    """Whichever module is imported first, it finds what it needs: no module needs another in a circle."""
    names = {path: path.with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__") for path in MODULES}
    order = sort_imports({name: (ROOT.parent / path).read_text() for path, name in names.items()})
    code = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"
    programs = [name for name in order if not name.endswith("__main__")]
    done = subprocess.run([sys.executable, "-c", code, *programs], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("first", "second", "is_circle"),
    [
        ("from p.b import x", "from p.a import y", True),
        ("import p.b", "try:\n    from p import a\nexcept ImportError: pass", True),
        ("from p.b import x", "if TYPE_CHECKING:\n    from p.a import y\nelse:\n    from p.a import y", True),
        ("from p.b import x", "class C:\n    import p.a", True),
        ("from p.b import x", "if TYPE_CHECKING:\n    from p.a import y", False),
        ("from p.b import x", "def f():\n    from p.a import y", False),
        ("from p.b import x", "import q.a", False),
    ],
)
def test_a_planted_circle_is_found(first: str, second: str, *, is_circle: bool) -> None:
    """What is imported later, or only for its types, closes none."""
    sources = {"p": "from p.a import y", "p.a": first, "p.b": second}
    if is_circle:
        with pytest.raises(CycleError):
            sort_imports(sources)
    else:
        assert sort_imports(sources) == ["p.b", "p.a", "p"]


@pytest.mark.parametrize("module", BUDGETS)
def test_import_stays_within_its_budget(module: str) -> None:
    """What a module brings along is decided, not grown; a child process pays for it at each start."""
    # -S: what site-packages hook into every start is not the module's doing
    code = "import sys, importlib; importlib.import_module(sys.argv[1]); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {code}", module],
        capture_output=True,
        text=True,
        check=True,
    )
    assert sorted(set(BUDGETS[module]) & set(done.stdout.split())) == []


def test_fences_would_see_a_break() -> None:
    """The walk finds imports of every form, inside functions too."""
    assert fence_breaks("nodeagent/app/plan.py", "def f():\n    from google import protobuf") == ["google.protobuf"]
    assert fence_breaks("nodeagent/app/plan.py", "import structlog.dev") == ["structlog.dev"]
    assert fence_breaks("nodeagent/core/log/lines.py", "import structlog") == []
    assert impure_imports("nodeagent/components/cdi/spec.py", "import anyio") == ["anyio"]
    assert impure_imports("nodeagent/components/cdi/component.py", "import anyio") == []
    assert impure_imports("nodeagent/components/fractions/reconcile_task.py", "import anyio") == []
    assert impure_imports("nodeagent/components/fractions/task.py", "import anyio") == ["anyio"]
    assert impure_imports("nodeagent/components/fractions/reconcile_tasks.py", "import anyio") == ["anyio"]
    assert impure_imports("nodeagent/rules/fractions/reconcile_task.py", "import anyio") == ["anyio"]
    assert impure_imports("nodeagent/extender/component.py", "import anyio") == ["anyio"]
    assert impure_imports("nodeagent/components/web/view.py", "from nodeagent.core.values import Envelope") == []
    assert impure_imports("nodeagent/components/web/view.py", "import nodeagent.core.clock") == ["nodeagent.core.clock"]
    assert impure_imports("nodeagent/rules/mig/profiles.py", "import nodeagent.core.values") == [
        "nodeagent.core.values"
    ]
    assert impure_imports("nodeagent/extender/rank.py", "import nodeagent.edge.kube.node") == [
        "nodeagent.edge.kube.node"
    ]
    assert impure_imports("nodeagent/extender/program.py", "import anyio") == []
    assert impure_imports("nodeagent/rules/offer/layout.py", "import os") == ["os"]
    assert foreign_imports("import yaml, os", ("anyio",)) == ["yaml"]
