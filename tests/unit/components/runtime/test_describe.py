"""What differs in a file, in words."""

import pytest

from nodeagent.components.runtime.prove import describe_difference
from nodeagent.model.runtime import FileChange


@pytest.mark.parametrize(
    ("path", "before", "after", "said"),
    [
        ("/a.toml", b"[p]\nx = false\n", b"[p]\nx = true\n", "/a.toml (p.x is false, not true)"),
        (
            "/a.toml",
            None,
            b"version = 2\nd = 1979-05-27\n",
            '/a.toml (version is missing, not 2, d is missing, not "1979-05-27")',
        ),
        ("/a.toml", b"p = 1\n", b'[p]\nx = ["a"]\n', '/a.toml (p.x is missing, not ["a"])'),
        (
            "/d.json",
            b'{"features": {"cdi": false}}',
            b'{"features": {"cdi": true}}',
            "/d.json (features.cdi is false, not true)",
        ),
        ("/docker.conf", b"{}", b'{"debug": true}', "/docker.conf (debug is missing, not true)"),
        (
            "/a.toml",
            b"",
            b"a = 1\nb = 2\nc = 3\nd = 4\ne = 5\n",
            "/a.toml (a is missing, not 1, b is missing, not 2, c is missing, not 3 and 2 more)",
        ),
    ],
    ids=["changed", "no file", "another kind", "json", "json by another name", "many"],
)
def test_both_values_are_told(path: str, before: bytes | None, after: bytes, said: str) -> None:
    """The first three; of a table only what is in it."""
    assert describe_difference(FileChange(path=path, before=before, after=after)) == said
