"""Files that are made from the code are what the code says."""

from pathlib import Path

import pytest

from tests import generate


def test_generated_files_are_committed_as_the_code_makes_them() -> None:
    """Whoever changes a declaration commits what is made from it: `make generate`."""
    assert generate.find_stale() == []


def test_generator_writes_what_is_stale_and_names_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The check names and writes nothing; the plain call writes; a second one has nothing to do."""
    assert generate.main(["--check"], tmp_path) == 1
    assert list(tmp_path.iterdir()) == []
    assert generate.main([], tmp_path) == 0
    assert (generate.main(["--check"], tmp_path), generate.find_stale(tmp_path)) == (0, [])
    lines = capsys.readouterr().out.splitlines()
    names = list(generate.GENERATED)
    assert lines == [f"{name}: out of date, run `make generate`" for name in names] + [
        f"{name}: written" for name in names
    ]
