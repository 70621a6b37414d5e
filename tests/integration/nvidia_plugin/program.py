"""NVIDIA's device plugin as a program that answers our questions: its module, with a test of ours in a package.

The module brings its own locked dependencies, and is itself held to the sum that is written here.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.integration.runtimes.releases import BUILD_SECONDS, fetch_module

MODULE: Final = "github.com/NVIDIA/k8s-device-plugin"
VERSION: Final = "0.19.1"
SUM: Final = "h1:JD3tbmFHCgAwu7+tw7A0PdQ75MYWvL+frgGkv7N5Nqo="
HERE: Final = Path(__file__).parent


def ask(package: str, name: str, questions: Sequence[Any], scratch: Path) -> list[Any]:
    """The answers of one of its packages to the questions, in their order; `name` is that of our test beside this."""
    source = scratch / "module"
    shutil.copytree(fetch_module(MODULE, VERSION, SUM), source)
    # The module cache is read only, and so is a copy of it.
    (source / package).chmod(0o755)
    shutil.copyfile(HERE / name, source / package / "nodeagent_test.go")
    (scratch / "questions.json").write_text(json.dumps(questions))
    test = {"answers_test.go": "TestAnswers", "choices_test.go": "TestChoices"}[name]
    done = subprocess.run(
        [
            *("nice", "-n", "10", "go", "test", "-mod=readonly", "-count=1", f"-run=^{test}$"),
            f"./{package}",
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
    assert done.returncode == 0, f"{package}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    answers: list[Any] = json.loads((scratch / "answers.json").read_text())
    return answers
