"""NVIDIA's programs in Go as programs that answer our questions: their modules, with a test of ours in a package.

A module brings its own locked dependencies, and is itself held to a sum that is written here.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.integration.runtimes.releases import BUILD_SECONDS, fetch_module

MODULE: Final = "github.com/NVIDIA/k8s-device-plugin"
VERSION: Final = "0.19.1"
SUM: Final = "h1:JD3tbmFHCgAwu7+tw7A0PdQ75MYWvL+frgGkv7N5Nqo="
HERE: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Original:
    """A package of a module, with a test of ours that answers questions."""

    module: str
    version: str
    sum: str
    package: str
    test: Path
    function: str
    files: tuple[str, ...] = ()
    """The files of the package to compile; empty for all."""


def ask(package: str, name: str, questions: Sequence[Any], scratch: Path) -> list[Any]:
    """The answers of one of its packages to the questions, in their order; `name` is that of our test beside this."""
    function = {"answers_test.go": "TestAnswers", "choices_test.go": "TestChoices"}[name]
    return ask_original(Original(MODULE, VERSION, SUM, package, HERE / name, function), questions, scratch)


def ask_original(original: Original, questions: Sequence[Any], scratch: Path) -> list[Any]:
    """The answers of a package to the questions, in their order."""
    source = scratch / "module"
    shutil.copytree(fetch_module(original.module, original.version, original.sum), source)
    package = source / original.package
    # The module cache is read only, and so is a copy of it.
    package.chmod(0o755)
    for path in package.glob("*.go") if original.files else ():
        if path.name not in original.files:
            path.unlink()
    shutil.copyfile(original.test, package / "nodeagent_test.go")
    (scratch / "questions.json").write_text(json.dumps(questions))
    done = subprocess.run(
        [
            *("nice", "-n", "10", "go", "test", "-mod=readonly", "-count=1", f"-run=^{original.function}$"),
            f"./{original.package}",
        ],
        cwd=source,
        env={
            **os.environ,
            "CGO_ENABLED": "1",
            "GOWORK": "off",
            "GOFLAGS": "",
            "QUESTIONS": str(scratch / "questions.json"),
            "ANSWERS": str(scratch / "answers.json"),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_SECONDS,
    )
    assert done.returncode == 0, f"{original.package}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    answers: list[Any] = json.loads((scratch / "answers.json").read_text())
    return answers
