"""Where the agent's code changes what outlives its process: the fail points, found in the sources themselves. Pure.

A point is a line that calls, or hands on, one of the functions by which Python changes a file system, a socket's bind
to a path among them. Nothing marks it
in the code: a new one is found the moment it is written, and must then be met by the matrix or be left out by name.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import nodeagent

PACKAGE: Final = Path(nodeagent.__file__).parent
OF_OS: Final = frozenset(
    {
        "chmod",
        "chown",
        "copy_file_range",
        "fchmod",
        "fchown",
        "fdatasync",
        "fsync",
        "ftruncate",
        "lchown",
        "link",
        "mkdir",
        "mkfifo",
        "mknod",
        "posix_fallocate",
        "pwrite",
        "pwritev",
        "remove",
        "removexattr",
        "rename",
        "replace",
        "rmdir",
        "sendfile",
        "setxattr",
        "symlink",
        "truncate",
        "unlink",
        "utime",
        "write",
        "writev",
    }
)
"""As functions of `os`, by which all others change a disk."""
MADE_OF_THEM: Final = frozenset({"makedirs", "removedirs", "renames"})
OF_SHUTIL: Final = frozenset({"copy", "copy2", "copyfile", "copyfileobj", "copymode", "copystat", "copytree", "move"})
OF_PATHS: Final = frozenset(
    {
        "chmod",
        "hardlink_to",
        "mkdir",
        "rename",
        "rmdir",
        "rmtree",
        "symlink_to",
        "touch",
        "unlink",
        "write_bytes",
        "write_text",
    }
)
"""As methods of paths, and the one of `shutil` that is called as nothing else is."""
WHOLE_FILES: Final = "write_atomically"
"""Who replaces a file: its steps are the same for everybody, what they interrupt is not."""
CREATES: Final = frozenset({"O_CREAT", "_OPEN_NEW"})
"""What `os.open` is given where it makes a file."""


_HINT: Final = re.compile(
    rf"\bos\.|\bshutil\.|\bopen\(|\.({'|'.join(sorted(OF_PATHS))}|bind|replace)\b|{WHOLE_FILES}\("
)
_WRITES: Final = re.compile(r"[rbt]*[wax+][wax+bt]*")
"""A mode in which a file is opened to be written."""


class Point(NamedTuple):
    file: str
    """Below the package."""
    first: int
    last: int
    call: str

    def __str__(self) -> str:
        return f"{self.file}:{self.first} {self.call}"


def find_points(package: Path = PACKAGE) -> tuple[Point, ...]:
    found: list[Point] = []
    for path in sorted(package.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        # To parse all of the package takes seconds.
        if _HINT.search(text):
            found += find_in_text(str(path.relative_to(package)), text)
    return tuple(found)


def find_in_text(name: str, text: str) -> tuple[Point, ...]:
    return tuple(_find_in(name, ast.parse(text)))


def _find_in(name: str, tree: ast.AST) -> Iterator[Point]:
    calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and _changes_by_name(node, node.func.id):
            yield Point(name, node.lineno, node.end_lineno or node.lineno, node.func.id)
        if not isinstance(node, ast.Attribute) or not _changes(node, calls.get(id(node))):
            continue
        call = calls.get(id(node), node)
        yield Point(name, node.lineno, call.end_lineno or node.lineno, node.attr)


def _changes_by_name(call: ast.Call, name: str) -> bool:
    return name == WHOLE_FILES or (name == "open" and _is_to_write(call))


def _changes(node: ast.Attribute, call: ast.Call | None) -> bool:
    owner = node.value.id if isinstance(node.value, ast.Name) else ""
    if owner == "os":
        return node.attr in OF_OS | MADE_OF_THEM or (node.attr == "open" and call is not None and _creates(call))
    if owner == "shutil" and node.attr in OF_SHUTIL:
        return True
    if node.attr == "open":
        return call is not None and _is_to_write(call)
    if node.attr == "bind":
        # Of a socket to a path: others have names for what they bind, or more than one.
        return call is not None and len(call.args) == 1 and not call.keywords and _is_text(call.args[0])
    if node.attr == "replace":
        # Of a path: texts and structs have two words, or named ones.
        return call is not None and len(call.args) == 1 and not call.keywords
    return node.attr in OF_PATHS


def _is_text(word: ast.expr) -> bool:
    return isinstance(word, ast.Call) and isinstance(word.func, ast.Name) and word.func.id == "str"


def _is_to_write(call: ast.Call) -> bool:
    words = [word.value for word in ast.walk(call) if isinstance(word, ast.Constant) and isinstance(word.value, str)]
    return any(_WRITES.fullmatch(word) for word in words)


def _creates(call: ast.Call) -> bool:
    words = {one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "") for one in ast.walk(call)}
    return bool(words & CREATES) or any(isinstance(one, ast.Name) and one.id == "flags" for one in call.args)


def find_point(points: Mapping[str, tuple[Point, ...]], file: str, line: int) -> Point | None:
    return next((point for point in points.get(file, ()) if point.first <= line <= point.last), None)


def group_points(points: tuple[Point, ...]) -> dict[str, tuple[Point, ...]]:
    grouped: dict[str, list[Point]] = {}
    for point in points:
        grouped.setdefault(point.file, []).append(point)
    return {file: tuple(found) for file, found in grouped.items()}
