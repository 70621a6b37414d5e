"""Located values: merging, and showing where and what."""

from nodeagent.config.tree import EMPTY, Mapping, Origin, Scalar, merge, nest, shorten
from tests.unit.config.helpers import HERE, tree_of


def test_origin_is_written_as_people_name_it() -> None:
    """A file with its line, a variable, a flag, or the default."""
    origins = [Origin("file", "/f", 3), Origin("file", "/f"), Origin("environment", "V"), Origin("flag", "--set a.b")]
    assert [str(origin) for origin in origins] == ["/f:3", "/f", "env V", "flag --set a.b"]
    assert str(EMPTY.origin) == "default"


def test_mappings_merge_and_everything_else_replaces() -> None:
    """Keys of both stay; a list, a value, or a change of shape replaces."""
    merged = merge(tree_of("{a: {x: 1, y: 2}, l: [1, 2], m: {x: 1}}"), tree_of("{a: {y: 3}, l: [4], m: 5, n: 6}"))
    assert isinstance(merged, Mapping)
    assert shorten(merged.entries["l"]) == "a list of 1"
    assert shorten(merged.entries["m"]) == "'5'"
    inner = merged.entries["a"]
    assert isinstance(inner, Mapping)
    assert [shorten(node) for node in inner.entries.values()] == ["'1'", "'3'"]
    assert list(merged.entries) == ["a", "l", "m", "n"]


def test_empty_section_takes_nothing_away() -> None:
    """A drop-in whose section is all commented out leaves the section of the main file alone."""
    under = tree_of("{a: 1}")
    assert merge(under, Scalar("", HERE)) is under
    assert merge(under, Scalar("", HERE, quoted=True)) != under


def test_nested_value_stands_at_its_path() -> None:
    """A flag for a.b makes a tree with b in a."""
    tree = nest(("a", "b"), Scalar("1", HERE))
    assert isinstance(tree, Mapping)
    assert tree.key_origins == {"a": HERE}
    assert shorten(tree.entries["a"]) == "a mapping of 1"


def test_long_value_is_shortened() -> None:
    """A complaint stays one readable line whatever was pasted."""
    assert len(shorten(Scalar("x" * 5000, HERE))) < 80
