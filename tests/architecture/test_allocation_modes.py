"""Every decision by the allocation mode names all modes: the type checker finds where a new mode is missing."""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from nodeagent.model.offering import AllocationMode, ModeWord

ROOT = Path(__file__).parents[2]
ENUM = "nodeagent/model/offering.py"
MEMBER = '    NONE = "none"\n'
PLANTED = '    VFIO = "vfio"\n'
DECIDING = {
    "nodeagent/components/mig/judge.py": ["_is_shared"],
    "nodeagent/components/offering/decide.py": ["_is_taken", "_list_holders", "find_switch"],
    "nodeagent/components/web/page/gpus.py": ["_is_divided"],
    "nodeagent/rules/offer/allocation_modes.py": ["_takes_mig", "gives_out"],
}
"""The functions that decide by the allocation mode, by file."""
COMPARED = re.compile(r"(?<!case )\b(?:is|is not|==|!=|in) \(?\{?AllocationMode\.[A-Z]+|\{AllocationMode\.[A-Z]+")


def _find_deciding(root: Path) -> dict[str, list[str]]:
    """The functions with a `match` over the modes, by file."""
    found = {
        path.relative_to(root).as_posix(): sorted(
            node.name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.FunctionDef)
            and any(isinstance(one, ast.Match) and "AllocationMode." in ast.unparse(one) for one in node.body)
        )
        for path in (root / "nodeagent").rglob("*.py")
        if "case AllocationMode." in path.read_text()
    }
    return {name: functions for name, functions in found.items() if functions}


def _find_compared(root: Path) -> list[str]:
    """Lines that decide by a single mode, or by a set or table of modes: a new mode would fall through unseen."""
    return [
        f"{path.relative_to(root).as_posix()}: {line.strip()}"
        for path in sorted((root / "nodeagent").rglob("*.py"))
        for line in path.read_text().splitlines()
        if COMPARED.search(line)
    ]


def test_decisions_by_the_mode_are_matches() -> None:
    """Whoever adds a decision names it here, and no decision is a comparison."""
    assert _find_deciding(ROOT) == DECIDING
    assert _find_compared(ROOT) == []


def test_a_planted_comparison_is_seen(tmp_path: Path) -> None:
    """Of every form that decided by a mode before."""
    lines = [
        "if door is AllocationMode.FRACTIONS and x:",
        "served = {AllocationMode.WHOLE, AllocationMode.NONE}",
        "key = {AllocationMode.CLAIMS: 1}[door]",
        "if door in (AllocationMode.CLAIMS, AllocationMode.NONE):",
    ]
    (tmp_path / "nodeagent").mkdir()
    (tmp_path / "nodeagent" / "planted.py").write_text("\n".join(lines))
    assert len(_find_compared(tmp_path)) == len(lines)


def test_the_configuration_knows_every_mode() -> None:
    """A rule names a mode by its word."""
    assert get_args(ModeWord) == tuple(map(str, AllocationMode))


@pytest.mark.long
def test_a_planted_mode_fails_the_type_checker(tmp_path: Path) -> None:
    """In each deciding function, which would otherwise answer by chance or end in a `KeyError` at run time."""
    shutil.copytree(ROOT / "nodeagent", tmp_path / "nodeagent", ignore=shutil.ignore_patterns("__pycache__", "native"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    enum = tmp_path / ENUM
    assert enum.read_text().count(MEMBER) == 1
    enum.write_text(enum.read_text().replace(MEMBER, MEMBER + PLANTED))
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run(
        [*command, *DECIDING], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    missed = [line for line in done.stdout.splitlines() if 'to "assert_never" has incompatible type' in line]
    assert {name: sum(line.startswith(f"{name}:") for line in missed) for name in DECIDING} == {
        name: len(functions) for name, functions in DECIDING.items()
    }, done.stdout
