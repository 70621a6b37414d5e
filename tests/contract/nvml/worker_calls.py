"""What the NVML worker asks of the library, found in its sources: symbols, structures, and layouts of its own.

A function is named by a string (`"nvmlDeviceGetName"`), wherever it stands; pynvml's code says which symbols and
structures that function uses, and those that it calls. A structure that the worker makes is an attribute of pynvml.
"""

import ast
import ctypes
import re
import struct
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pynvml

from nodeagent.edge.nvml import worker

WORKER = Path(worker.__file__).parent
FUNCTION = re.compile(r"nvml[A-Z]\w*")
_POINTER = "_nvmlGetFunctionPointer"


@cache
def list_functions() -> frozenset[str]:
    """The names of functions in the worker: pynvml's, and symbols that are called past pynvml."""
    by_name = {
        node.value
        for node in _walk_worker()
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and FUNCTION.fullmatch(node.value)
    }
    by_attribute = {name for name in _list_attributes() if callable(_get(name)) and not is_structure(_get(name))}
    return frozenset(by_name | by_attribute)


@cache
def list_symbols() -> frozenset[str]:
    """The library's symbols that these functions call."""
    symbols = {name for name in list_functions() if _get(name) is None}
    for function in _list_reached():
        for call in _walk_calls(function):
            if isinstance(call.func, ast.Name) and call.func.id == _POINTER:
                (name,) = call.args
                assert isinstance(name, ast.Constant), f"pynvml's {function} makes up the name of a symbol"
                symbols.add(str(name.value))
    return frozenset(symbols)


@cache
def list_structures() -> dict[str, Any]:
    """The structures with members that the worker or pynvml's functions for it make, by pynvml's name."""
    names = set(_list_attributes())
    for function in _list_reached():
        names |= {node.id for node in ast.walk(_definitions()[function]) if isinstance(node, ast.Name)}
    return {name: _get(name) for name in sorted(names) if is_structure(_get(name)) and hasattr(_get(name), "_fields_")}


@cache
def list_constants() -> dict[str, int]:
    """Numbers of pynvml's that the worker uses, and the version words of the structures that it makes."""
    words = {name.removeprefix("c_").removesuffix("_t") for name in list_structures()}
    return {name: _get(name) for name in sorted(_list_attributes() | words) if isinstance(_get(name), int)}


@cache
def list_own_layouts() -> dict[str, struct.Struct]:
    """The worker's own layouts of what lies in the library's buffers, by module and name."""
    found: dict[str, struct.Struct] = {}
    for path in sorted(WORKER.glob("*.py")):
        module = import_module(f"{worker.__name__}.{path.stem}")
        for name, value in vars(module).items():
            ones = value if isinstance(value, tuple) else (value,)
            found |= {f"{path.stem}.{name}[{at}]": one for at, one in enumerate(ones) if isinstance(one, struct.Struct)}
    return found


def is_structure(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, ctypes.Structure | ctypes.Union)


def _walk_worker() -> Iterator[ast.AST]:
    for path in sorted(WORKER.glob("*.py")):
        yield from ast.walk(ast.parse(path.read_text()))


def _list_attributes() -> set[str]:
    return {
        node.attr
        for node in _walk_worker()
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "pynvml"
    }


def _get(name: str) -> Any:
    return getattr(pynvml, name, None)


@cache
def _definitions() -> dict[str, ast.FunctionDef]:
    tree = ast.parse(Path(pynvml.__file__).read_text())
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def _list_reached() -> set[str]:
    """Pynvml's functions that the worker calls, and those that they call."""
    reached: set[str] = set()
    waiting = [name for name in list_functions() if name in _definitions()]
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached.add(name)
        waiting += [
            call.func.id
            for call in _walk_calls(name)
            if isinstance(call.func, ast.Name) and call.func.id in _definitions() and call.func.id != _POINTER
        ]
    return reached


def _walk_calls(function: str) -> Iterator[ast.Call]:
    return (node for node in ast.walk(_definitions()[function]) if isinstance(node, ast.Call))
