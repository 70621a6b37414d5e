"""Changing single keys of a file that people wrote."""

import pytest

from nodeagent.components.runtime.toml_edit import ConfigUneditable, get, get_table, merge, set_keys

KEY = ("plugins", "io.containerd.grpc.v1.cri", "enable_cdi")


def test_a_value_keeps_its_comment_and_its_place() -> None:
    text = '# top\n[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = false # off\nz = 1\n'
    assert set_keys("x", text.encode(), {KEY: True}).decode() == text.replace("false", "true")


def test_line_ends_of_other_systems_are_kept() -> None:
    """A file that was written with carriage returns has them afterwards."""
    edited = set_keys("x", b"a = 1\r\n# c\r\n", {("b",): 2})
    assert edited.startswith(b"a = 1\r\n# c\r\n")


def test_what_is_no_table_is_not_made_one() -> None:
    """The file is named, and that nothing was written."""
    with pytest.raises(ConfigUneditable, match=r"cannot set plugins.*in x: plugins is no table.*nothing was written"):
        set_keys("x", b"plugins = 1\n", {KEY: True})


def test_an_edit_that_changes_more_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof by the other parser has the last word: a lost key, and a file that it cannot read."""
    for written, said in (("z = 1\n", "other keys would change"), ("=", "it is no TOML")):
        monkeypatch.setattr("tomlkit.dumps", lambda _document, written=written: written)
        with pytest.raises(ConfigUneditable, match=said):
            set_keys("x", b"a = 1\n", {KEY: True})


def test_values_are_found_by_path() -> None:
    """What is not there, or no table on the way, is nothing."""
    document = {"a": {"b": {"c": 1}}, "d": 2}
    assert get(document, ("a", "b", "c")) == 1
    assert get(document, ("a", "x")) is None
    assert get(document, ("d", "x")) is None
    assert (get_table(document, ("a", "b")), get_table(document, ("d",))) == ({"c": 1}, {})


def test_merging_touches_neither_side() -> None:
    """Tables are joined, whatever else is replaced."""
    base = {"a": {"b": [1]}, "c": 1}
    over = {"a": {"d": 2}, "c": {"e": 3}}
    assert merge(base, over) == {"a": {"b": [1], "d": 2}, "c": {"e": 3}}
    assert base == {"a": {"b": [1]}, "c": 1}
