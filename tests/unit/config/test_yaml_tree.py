"""YAML text to located values: lines are kept, slips are named, nothing grows without bound."""

from typing import Any

import pytest
import yaml

from nodeagent.config.tree import Mapping, Node, Origin, Scalar, Sequence
from nodeagent.config.yaml_tree import DEEPEST, MOST_VALUES, Parsed, parse_yaml


@pytest.fixture(params=["C parser", "Python parser"])
def either_parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyYAML with and without its C parser."""
    if request.param == "Python parser":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)


def parse(text: str) -> Parsed:
    return parse_yaml(text, lambda line: Origin("file", "f", line))


def plain(node: Node | None) -> Any:
    match node:
        case None:
            return None
        case Scalar(text=text):
            return text
        case Sequence(items=items):
            return [plain(item) for item in items]
        case Mapping(entries=entries):
            return {key: plain(value) for key, value in entries.items()}


def complaint(text: str) -> str:
    parsed = parse(text)
    return "\n".join(map(str, parsed.problems))


@pytest.mark.usefixtures("either_parser")
def test_every_value_knows_its_line() -> None:
    """Keys and values carry the line on which they stand."""
    node = parse("a: 1\nb:\n  - x\n  -  y\n").node
    assert isinstance(node, Mapping)
    assert node.key_origins["b"].line == 2
    items = node.entries["b"]
    assert isinstance(items, Sequence)
    assert [item.origin.line for item in items.items] == [3, 4]


@pytest.mark.usefixtures("either_parser")
def test_scalars_keep_their_text() -> None:
    """No value is guessed at: dates, times, octal numbers and truth values stay text."""
    assert plain(parse("[2024-01-01, 1:30, 010, no, ~]").node) == ["2024-01-01", "1:30", "010", "no", "~"]


def test_quoting_and_text_tags_are_remembered() -> None:
    """A quoted, block or tagged text is text even where it looks like nothing."""
    node = parse("a: 'null'\nb: null\nc: !!str null\nd: |-\n  null\ne:\n").node
    assert isinstance(node, Mapping)
    nulls = {key: value.is_null for key, value in node.entries.items() if isinstance(value, Scalar)}
    assert nulls == {"a": False, "b": True, "c": False, "d": False, "e": True}


@pytest.mark.parametrize("text", ["", "# nothing\n", "\n\n"])
def test_text_that_says_nothing_is_nothing(text: str) -> None:
    """An empty file is no mistake."""
    assert parse(text) == Parsed(None, ())


def test_alias_is_the_value_it_names() -> None:
    """A complete anchor can be used again."""
    assert plain(parse("a: &x {k: 1}\nb: *x\n").node) == {"a": {"k": "1"}, "b": {"k": "1"}}


@pytest.mark.usefixtures("either_parser")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb: 2\na: 3\n", "f:3: a: key 'a' is given twice, first at f:1; keep one"),
        ("s:\n  k: 1\n  k: 2\n", "f:3: s.k: key 'k' is given twice, first at f:2; keep one"),
        ("a: !foo 1\n", "f:1: a: tag '!foo' is not read; write the value plainly"),
        ("a: !!python/object:os.system {}\n", "f:1: a: tag 'tag:yaml.org,2002:python/object:os.system' is not read"),
        ("<<: {a: 1}\n", "f:1: merge key << is not read; write the values out"),
        ("? [a]\n: 1\n", "f:1: a key is a list or a mapping; keys are plain text"),
        ("a: *b\n", "f:1: a: alias *b refers to nothing that is complete here"),
        ("a: &b [*b]\n", "f:1: a: alias *b refers to nothing"),
        ("--- 1\n--- 2\n", "f:2: a second document begins; write everything in one"),
        ("a: b\n\tc: d\n", "indent with spaces, not tabs"),
        ("a: {b: c\n", "not YAML at column "),
        ("a: [b\nc: 'd", "not YAML at column "),
        ("ok: 1\nbad: \x01\n", "f:2: not YAML: character #x0001 is not allowed; remove it"),
        ("[" * 100_000, f"more than {DEEPEST} levels are nested"),
        ("{a: " * 100_000, f"more than {DEEPEST} levels are nested"),
    ],
)
def test_text_that_is_refused_names_line_and_remedy(text: str, expected: str) -> None:
    """Every slip is one line with the place and what to do."""
    assert expected in complaint(text)


def test_lone_surrogate_is_refused() -> None:
    """A flag or variable that is not UTF-8 arrives as a lone surrogate, and is named rather than raised."""
    assert any(word in complaint("a\n\ud800") for word in ("f:2: not UTF-8", "#xd800"))


def test_aliases_that_multiply_are_stopped() -> None:
    """A few lines that expand to billions of values are refused at once."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    assert f"more than {MOST_VALUES} values, aliases expanded" in complaint("\n".join(lines))


def test_number_of_values_is_bounded_exactly() -> None:
    """The list itself counts as one of the values."""
    assert complaint(f"[{'x,' * (MOST_VALUES - 1)}]") == ""
    assert "aliases expanded" in complaint(f"[{'x,' * MOST_VALUES}]")


def test_duplicate_keeps_the_first_and_reads_on() -> None:
    """After a duplicate key the rest of the text is still judged."""
    parsed = parse("a: 1\na: 2\nb: 3\nb: 4\n")
    assert plain(parsed.node) == {"a": "1", "b": "3"}
    assert len(parsed.problems) == 2
