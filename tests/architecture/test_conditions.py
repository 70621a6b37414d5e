"""The catalogue of conditions and the places that set conditions know the same codes, by the syntax tree.

A place sets a condition by a literal, by a constant, or by a variable of a loop over what a function or constant of
the same part lists; the codes of a loop are those of the dictionary keys, tuples and constants in what it goes through.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from nodeagent.model.conditions import CATALOGUE

ROOT = Path(__file__).parents[2] / "nodeagent"
SETTING = {"set", "show", "replace", "set_condition"}
CODE = re.compile(r"[a-z]+(-[a-z0-9]+)+")
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")
Sources = dict[str, str]
"""Text by path below `nodeagent/`."""


class Part:
    """The sources of one part, such as `components/mig`."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.trees = [ast.parse(text) for text in texts]
        self.functions: dict[str, list[ast.AST]] = {}
        for tree in self.trees:
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    self.functions.setdefault(node.name, []).append(node)

    def list_raised(self, constants: dict[str, set[str]]) -> Iterator[str]:
        """The codes that the part sets; `?` and the place for one that cannot be found out."""
        for functions in self.functions.values():
            for function in functions:
                for call in ast.walk(function):
                    if isinstance(call, ast.Call) and _sets_condition(call):
                        yield from self._resolve(call.args[0], function, constants)

    def _resolve(self, code: ast.expr, function: ast.AST, constants: dict[str, set[str]]) -> Iterator[str]:
        if isinstance(code, ast.Constant):
            yield str(code.value)
        elif isinstance(code, ast.Name) and CONSTANT.fullmatch(code.id):
            yield from constants.get(code.id, {f"? {code.id}"})
        elif isinstance(code, ast.Name) and not _is_parameter(code.id, function):
            loops = [
                node.iter
                for node in ast.walk(function)
                if isinstance(node, ast.For) and code.id in {one.id for one in _names(node.target)}
            ]
            found = {each for loop in loops for each in self._gather(loop, constants)}
            yield from found or {f"? {code.id} in {getattr(function, 'name', '')}"}

    def _gather(self, expression: ast.expr, constants: dict[str, set[str]]) -> Iterator[str]:
        """The codes in what a loop goes through."""
        called = {getattr(one, "attr", getattr(one, "id", "")) for one in ast.walk(expression)}
        looked_at = [expression, *(each for name in called for each in self.functions.get(name, ()))]
        if isinstance(expression, ast.Attribute):  # a field of a decision, which is made somewhere in the part
            looked_at = [tree for tree in self.trees if _declares(expression.attr, tree)]
        for node in (inner for each in looked_at for inner in ast.walk(each)):
            if isinstance(node, ast.Dict):
                yield from (code for key in node.keys if key is not None for code in _read(key, constants))
            if isinstance(node, ast.Tuple):
                yield from (code for one in node.elts[:1] for code in _read(one, constants))
            if isinstance(node, ast.Name) and CONSTANT.fullmatch(node.id):
                yield from (code for code in constants.get(node.id, ()) if CODE.fullmatch(code))


def _sets_condition(call: ast.Call) -> bool:
    function = call.func
    return isinstance(function, ast.Attribute) and (
        (function.attr in SETTING and "conditions" in ast.unparse(function.value)) or function.attr == "set_condition"
    )


def _declares(field: str, tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == field
        for node in ast.walk(tree)
    )


def _names(node: ast.AST) -> Iterator[ast.Name]:
    return (one for one in ast.walk(node) if isinstance(one, ast.Name))


def _is_parameter(name: str, function: ast.AST) -> bool:
    """Whether the caller says the code: `set_condition` of a part, whose calls are looked at themselves."""
    return isinstance(function, ast.FunctionDef) and name in {one.arg for one in function.args.args}


def _read(node: ast.AST, constants: dict[str, set[str]]) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value):
        yield node.value
    if isinstance(node, ast.Name):
        yield from (code for code in constants.get(node.id, ()) if CODE.fullmatch(code))


def _list_constants(texts: Iterable[str]) -> dict[str, set[str]]:
    """The strings of each constant by name, those of other constants in it among them."""
    found: dict[str, set[str]] = {}
    used: dict[str, set[str]] = {}
    for text in texts:
        for node in ast.parse(text).body:
            targets = (
                node.targets
                if isinstance(node, ast.Assign)
                else [node.target]
                if isinstance(node, ast.AnnAssign)
                else []
            )
            value = getattr(node, "value", None)
            for target in targets:
                pairs = (
                    zip(target.elts, value.elts, strict=True)
                    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
                    else [(target, value)]
                )
                for name, said in pairs:
                    if isinstance(name, ast.Name) and CONSTANT.fullmatch(name.id) and said is not None:
                        strings = {one.value for one in ast.walk(said) if isinstance(one, ast.Constant)}
                        found.setdefault(name.id, set()).update(one for one in strings if isinstance(one, str))
                        used.setdefault(name.id, set()).update(one.id for one in _names(said))
    return {name: strings.union(*(found.get(one, set()) for one in used[name])) for name, strings in found.items()}


def find_raised(sources: Sources) -> set[str]:
    """Every code that a part of the agent sets."""
    parts: dict[str, list[str]] = {}
    for path, text in sources.items():
        parts.setdefault("/".join(Path(path).parts[:2]), []).append(text)
    constants = {part: _list_constants(texts) for part, texts in parts.items()}
    return {code for part, texts in parts.items() for code in Part(texts).list_raised(constants[part])}


def read_sources() -> Sources:
    return {
        path.relative_to(ROOT).as_posix(): path.read_text()
        for room in ("app", "components", "core")
        for path in sorted((ROOT / room).rglob("*.py"))
    }


@pytest.fixture(scope="module")
def raised() -> set[str]:
    return find_raised(read_sources())


def test_every_condition_is_set_somewhere(raised: set[str]) -> None:
    """A condition that no part sets has a page, an alert and a remedy, and is never seen."""
    assert {definition.code for definition in CATALOGUE} - raised == set()


def test_no_part_sets_what_the_catalogue_lacks(raised: set[str]) -> None:
    """Such a condition would be an error at the moment at which a person needs it."""
    assert raised - {definition.code for definition in CATALOGUE} == set()


PLANTED = {
    "a literal": "def f(self): self._conditions.set('gpu-planted')",
    "a constant": "PLANTED = 'gpu-planted'\ndef f(self): self._conditions.replace(PLANTED, {})",
    "one of two constants": "A, B = 'gpu-planted', 'gpu-other'\ndef f(self): self.conditions.set(A)",
    "a method of the part": "def f(self): self._row.set_condition('gpu-planted', gpu)",
    "a list of codes": "CODES = ('gpu-planted',)\ndef f(self):\n for code in CODES: self._conditions.set(code)",
    "a decision": (
        "def decide(): return {'gpu-planted': {}}\n"
        "def f(self):\n for code, d in decide().items(): self._conditions.replace(code, d)"
    ),
    "a field of a decision": (
        "class Decision:\n conditions: tuple\ndef decide(): return Decision((('gpu-planted', 'why'),))\n"
        "def f(self):\n for code, d in decide().conditions: self._conditions.replace(code, d)"
    ),
}


@pytest.mark.parametrize("text", PLANTED.values(), ids=PLANTED)
def test_a_planted_place_is_seen(text: str) -> None:
    """In each form in which a part names what it sets."""
    assert find_raised({"components/planted/component.py": text}) == {"gpu-planted"}


def test_a_place_that_cannot_be_read_is_said_to_be_one() -> None:
    """A new form of naming a code does not pass unseen: it is no code of the catalogue."""
    (found,) = find_raised({"core/planted.py": "def f(self):\n code = ask()\n self._conditions.set(code)"})
    assert found == "? code in f"


def test_a_mention_sets_nothing() -> None:
    """To clear a condition, or to read its code, is not to set it: a planted condition that nobody sets is found."""
    text = "def f(self):\n self._conditions.clear('gpu-planted')\n return 'gpu-planted' in self.codes"
    assert find_raised({"components/planted/component.py": text}) == set()
