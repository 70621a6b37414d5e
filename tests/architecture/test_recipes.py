"""Each recipe of docs/development/recipes.md works as it is written: followed in a copy of the tree, step by step."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.recipes import PAGE, ROOT, Call, Edit, Recipe, copy_tree, read_recipes

LINES_MAX = 10
RECIPES = read_recipes(PAGE.read_text(encoding="utf-8"))
NAMED = [pytest.param(each, id=each.title) for each in RECIPES]
FAILED = 1
"""The status of tests and of a type checker that ran and found something; any other means that they did not run."""


def check_style(recipe: Recipe, tree: Path) -> None:
    files = sorted({edit.file for edit in recipe.edits if edit.file.endswith(".py")})
    for words in (["check", "--no-cache", "-q"], ["format", "--check", "--no-cache", "-q"]):
        done = subprocess.run(
            [Path(sys.executable).with_name("ruff"), *words, *files],
            cwd=tree,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("recipe", NAMED)
def test_a_recipe_followed_works(recipe: Recipe, tmp_path: Path) -> None:
    """Its commands pass, or fail where the page says that a step is still missing; the linter agrees at the end."""
    copy_tree(tmp_path)
    for step in recipe.steps:
        if isinstance(step, Edit):
            step.apply(tmp_path)
            continue
        done = step.run(tmp_path)
        assert done.returncode == (FAILED if step.fails else 0), f"{step.words}\n{done.stdout}{done.stderr}"
    check_style(recipe, tmp_path)


@pytest.mark.parametrize("recipe", NAMED)
def test_a_recipe_is_short_and_ends_with_tests_that_pass(recipe: Recipe) -> None:
    """Ten lines to read beside its blocks; what is longer belongs into the code that the recipe changes."""
    assert len(recipe.prose) <= LINES_MAX, recipe.prose
    last = recipe.steps[-1]
    assert isinstance(last, Call)
    assert not last.fails


@pytest.mark.parametrize("recipe", NAMED)
def test_a_recipe_changes_files_that_are_there(recipe: Recipe, tmp_path: Path) -> None:
    """Whoever moves a line that a recipe names is told at once."""
    for edit in recipe.edits:
        place = tmp_path / edit.file
        if (ROOT / edit.file).exists() and not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text((ROOT / edit.file).read_text(encoding="utf-8"), encoding="utf-8")
        assert (ROOT / edit.file).parent.is_dir(), edit.file
        place.parent.mkdir(parents=True, exist_ok=True)
        edit.apply(tmp_path)


def test_a_page_is_read_as_people_read_it(tmp_path: Path) -> None:
    """Blocks with a file are edits, the others commands; everything else is prose."""
    page = """# Recipes

## A thing

It has a line.

```python
# thing.py, after `A = (`
    2,
```

```
pytest tests/unit -k thing  # fails: nobody counts it
UPDATE=1 pytest tests/unit
```

```python
# thing.py, in place of `3,`
    4,
```

```python
# other.py, new
B = 1
```
"""
    (recipe,) = read_recipes(page)
    assert (recipe.title, recipe.prose) == ("A thing", ("It has a line.",))
    (tmp_path / "thing.py").write_text("A = (\n    3,\n)\n", encoding="utf-8")
    first, failing, passing, *others = recipe.steps
    assert isinstance(failing, Call)
    assert isinstance(passing, Call)
    assert (failing.fails, failing.words[-3:]) == (True, ("tests/unit", "-k", "thing"))
    assert (passing.fails, passing.environ, passing.words[-1]) == (False, {"UPDATE": "1"}, "tests/unit")
    for edit in (first, *others):
        assert isinstance(edit, Edit)
        edit.apply(tmp_path)
    assert (tmp_path / "thing.py").read_text(encoding="utf-8") == "A = (\n    2,\n    4,\n)\n"
    assert (tmp_path / "other.py").read_text(encoding="utf-8") == "B = 1\n"
    for edit in recipe.edits[1:]:
        with pytest.raises(LookupError):
            edit.apply(tmp_path)


@pytest.mark.parametrize("block", ["```\nrm -r /\n```\n", "```python\nA = 1\n```\n"])
def test_a_block_that_nothing_follows_is_refused(block: str) -> None:
    """A block that the test passed over would be believed, and could not be wrong."""
    with pytest.raises(LookupError):
        read_recipes(f"## A thing\n\n{block}")
