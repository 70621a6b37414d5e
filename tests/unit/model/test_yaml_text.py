"""YAML from outside: values, or one sentence."""

import pytest

from nodeagent.model.yaml_text import DEEPEST, MOST_VALUES, YamlUnreadable, parse_yaml, parse_yaml_documents
from tests.support.texts.hostile_yaml import HOSTILE


def test_values_are_as_yaml_says() -> None:
    """Types, several documents, aliases, and nothing at all."""
    listed = [True, 1.5, None]
    assert parse_yaml(b"a: 1\nb: &x [yes, 1.5, null]\nc: *x\n") == {"a": 1, "b": listed, "c": listed}
    assert parse_yaml("") is None
    assert parse_yaml_documents("a\n---\nb\n") == ("a", "b")
    assert parse_yaml_documents("&x a\n---\n- &x b\n- *x\n") == ("a", ["b", "b"])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: [", "it is no YAML: did not find expected node content in line 2, column 1"),
        ("a: *nobody", "it is no YAML: found undefined alias in line 1, column 4"),
        ("a\n---\nb\n", "more than one document"),
        ("[" * (DEEPEST + 1), "nested too deeply in line 1"),
        ("- x\n" * (MOST_VALUES + 1), "more than 500000 values"),
        (HOSTILE["aliases"], "more than 500000 values, with every alias spelled out"),
        (HOSTILE["date"], "it is no YAML: month must be in 1..12"),
        (HOSTILE["bytes"], "it is no YAML: "),
    ],
)
@pytest.mark.long
def test_what_cannot_be_read_is_one_sentence(text: str, reason: str) -> None:
    """With line and column where there are any."""
    with pytest.raises(YamlUnreadable) as caught:
        parse_yaml(text)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_deepest_that_is_read_is_read() -> None:
    """The bound is the bound."""
    value = parse_yaml("[" * DEEPEST + "]" * DEEPEST)
    for _ in range(DEEPEST - 1):
        (value,) = value
    assert value == []
