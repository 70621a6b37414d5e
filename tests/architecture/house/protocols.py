"""Protocols that only one class of the package has the methods of, though no wall stands between it and who uses them.

A wall is a rule of `docs/architecture.md`, chapter 2: who may not import the class needs the protocol.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.architecture.house.names import list_sources

# From left to right, as chapter 2 has it: a module may import what is right of it.
_LAYERS: Final = ("cli", "app", "components", "rules", "config", "edge", "core", "model")


class Class(NamedTuple):
    """A class: where it stands, what it is made of, and what it can do."""

    place: tuple[str, ...]
    name: str
    bases: tuple[str, ...]
    methods: frozenset[str]


class Single(NamedTuple):
    """A protocol with one implementation, both with their places."""

    protocol: Class
    implementation: Class


def find_singles(package: Path, *others: Path) -> Iterator[Single]:
    """The protocols with one implementation that those who use them could import; others implement them as well."""
    trees = {
        path.relative_to(above).with_suffix("").parts: ast.parse(path.read_text(encoding="utf-8"))
        for above, folder in ((package, package), *((other.parent, other) for other in others))
        for path in list_sources(folder)
    }
    classes = [each for place, tree in trees.items() for each in _list_classes(place, tree)]
    by_name = {each.name: each for each in classes}
    members = {each: _list_methods(each, by_name) for each in classes}
    imports = {place: frozenset(_list_imports(tree)) for place, tree in trees.items() if place[-1] != "__init__"}
    for protocol in classes:
        wanted = members[protocol]
        if "Protocol" not in protocol.bases or not wanted:
            continue
        having = [
            each
            for each in classes
            if "Protocol" not in each.bases and each is not protocol and wanted <= members[each]
        ]
        users = [place for place, imported in imports.items() if _is_among(imported, protocol)]
        if protocol.place[:2] != ("model", "ports"):
            users.append(protocol.place)
        if len(having) == 1 and all(may_import(user, having[0].place) for user in users):
            yield Single(protocol, having[0])


def may_import(user: tuple[str, ...], owner: tuple[str, ...]) -> bool:
    """Whether the rules let one module import another."""
    left, right = _get_layer(user), _get_layer(owner)
    if left == "components":
        if right == "components":
            return user[1] == owner[1]
        if right in ("edge", "core") and not (user[-1] == "component" or user[-1].endswith("_task")):
            return False
    if left == right == "edge":
        return user[1] == owner[1] or owner[1] in ("host", "grpc")
    if {left, right} == {"core", "model"}:
        return False
    return left == "" or (right != "" and _LAYERS.index(left) <= _LAYERS.index(right))


def _get_layer(place: tuple[str, ...]) -> str:
    return place[0] if place[0] in _LAYERS else ""


def _list_classes(place: tuple[str, ...], tree: ast.Module) -> Iterator[Class]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            bases = tuple(_get_name(base) for base in node.bases)
            yield Class(place, node.name, bases, frozenset(_list_members(node)))


def _list_members(node: ast.ClassDef) -> Iterator[str]:
    for each in node.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            yield each.name
            yield from _list_assigned(each)
        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            yield each.target.id


def _list_assigned(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """The attributes that a method gives its object."""
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
            yield node.attr


def _get_name(base: ast.expr) -> str:
    if isinstance(base, ast.Subscript):
        return _get_name(base.value)
    return base.id if isinstance(base, ast.Name) else base.attr if isinstance(base, ast.Attribute) else ""


def _list_methods(each: Class, by_name: Mapping[str, Class], seen: frozenset[str] = frozenset()) -> frozenset[str]:
    """The members of a class with those of its bases in the package."""
    found = each.methods - {"__init__", "__slots__"}
    for base in each.bases:
        if base in by_name and base not in seen:
            found |= _list_methods(by_name[base], by_name, seen | {each.name})
    return found


def _list_imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The names that a module imports, each with the module it is imported from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from ((node.module, name.name) for name in node.names)


def _is_among(imported: Iterable[tuple[str, str]], protocol: Class) -> bool:
    """Whether the protocol is among the imports, from where it stands or from a package that hands it on."""
    module = ".".join(("nodeagent", *protocol.place))
    return any(name == protocol.name and f"{module}.".startswith(f"{source}.") for source, name in imported)
