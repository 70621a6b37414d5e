"""Building once, with a stand-in for the Go tool chain."""

import os
from pathlib import Path

import pytest

from tests.integration.cluster.errors import BuildFailed
from tests.integration.cluster.making import build as building
from tests.integration.cluster.making.plan import BuildPlan, Program
from tests.support.files.cache import CACHE_VARIABLE

PLAN = BuildPlan(tuple(Program(name, f"example.org/{name}", "example.org", "v1") for name in ("one", "two")), (), "key")
GO = """#!/bin/sh
echo "$@" >>"$CALLS"
for last; do true; done
[ "$last" = "example.org/$BROKEN" ] && { echo "first line"; echo "undefined: thing"; exit 1; }
while [ "$1" != -o ]; do shift; done
echo program >"$2"
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `go` that writes what it was asked for into this file, and an empty cache."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "go").write_text(GO)
    (tools / "go").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("BROKEN", "")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "calls"


def test_a_second_build_builds_nothing(calls: Path) -> None:
    """The first build makes every program and says so; the second finds them and stays silent."""
    said: list[str] = []
    folder = building.build(PLAN, said.append)
    assert sorted(path.name for path in folder.iterdir()) == ["one", "two"]
    assert said == ["building one, 1 of 2, 0 s", "building two, 2 of 2, 0 s"]
    before = calls.read_text()
    assert building.build(PLAN, said.append) == folder
    assert calls.read_text() == before
    assert len(said) == 2


def test_a_broken_off_build_goes_on_where_it_stopped(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that was built before a failure is not built again; nothing counts as built until all is."""
    monkeypatch.setenv("BROKEN", "two")
    with pytest.raises(BuildFailed, match=r"could not build two.*\n.*first line\nundefined: thing"):
        building.build(PLAN, lambda _: None)
    assert building.find_binaries(PLAN) is None
    monkeypatch.setenv("BROKEN", "")
    assert building.build(PLAN, lambda _: None) == building.find_binaries(PLAN)
    assert [line.split()[-1] for line in calls.read_text().splitlines()].count("example.org/one") == 1


def test_the_cache_lies_in_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a choice of its own the cache follows XDG_CACHE_HOME, never the checkout."""
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/somebody")
    assert building.find_cache() == Path("/var/cache/somebody/nodeagent/cluster")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert building.find_cache() == Path.home() / ".cache/nodeagent/cluster"
