"""Builds the cluster's programs once, into a cache outside the checkout, and says how far it is.

Owns the cache: one folder per key, complete or called `<key>.partial`; a broken-off build goes on where it stopped.
Refuses to build with anything but the pinned modules (`-mod=readonly`).
"""

import dataclasses
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.integration.cluster.errors import BuildFailed, NotBuilt
from tests.integration.cluster.making.plan import GO_ENVIRONMENT, BuildPlan, Program, plan_build
from tests.integration.cluster.versions import MODULE, Versions
from tests.support.files.cache import find_cache as find_whole_cache
from tests.support.files.cache import locked

PROGRESS_SECONDS = 15
LAST_LINES = 20


def find_cache() -> Path:
    """Where built programs are kept."""
    return find_whole_cache() / "cluster"


def read_plan(module: Path = MODULE) -> BuildPlan:
    """The plan for the go.mod in this folder (the cluster's) and the Go tool chain in PATH."""
    version = subprocess.run(
        ["go", "env", "GOVERSION", "GOARCH"], cwd=module, capture_output=True, text=True, check=True
    )
    return plan_build((module / "go.mod").read_text(), (module / "go.sum").read_text(), version.stdout)


def find_binaries(plan: BuildPlan) -> Path | None:
    """The folder with all programs of the plan, or None until it is built."""
    folder = find_cache() / plan.key
    return folder if folder.is_dir() else None


def build(plan: BuildPlan, say: Callable[[str], None], module: Path = MODULE) -> Path:
    """Return the folder with the programs, building what is missing.

    Raises:
        BuildFailed: go refused one of them.
    """
    cache = find_cache()
    cache.mkdir(parents=True, exist_ok=True)
    with locked(cache / "lock"):
        finished = find_binaries(plan)
        if finished is not None:
            return finished
        partial = cache / f"{plan.key}.partial"
        partial.mkdir(exist_ok=True)
        progress = _Progress(say, len(plan.programs))
        for program in plan.programs:
            progress.begin(program.name)
            if not (partial / program.name).exists():
                _build_program(module, plan, program, partial, progress.tell)
        for log in partial.glob("*.log"):
            log.unlink()
        return partial.rename(cache / plan.key)


@dataclasses.dataclass(frozen=True, slots=True)
class Programs:
    """Each program of a cluster of these versions."""

    versions: Versions
    paths: Mapping[str, Path]


def find_programs(versions: Versions) -> Programs:
    """The built programs of these versions.

    Raises:
        NotBuilt: one of them is not there.
    """

    def find(module: Path) -> Path:
        folder = find_binaries(read_plan(module))
        if folder is None:
            raise NotBuilt(versions)
        return folder

    return _choose_programs(versions, find)


def build_programs(versions: Versions, say: Callable[[str], None]) -> Programs:
    """The programs of these versions, built where they are missing."""
    return _choose_programs(versions, lambda module: build(read_plan(module), say, module))


def _choose_programs(versions: Versions, provide: Callable[[Path], Path]) -> Programs:
    folders = {module: provide(module) for module in (MODULE, *sorted(set(versions.modules.values())))}
    newest = {program.name: program for program in folders[MODULE].iterdir()}
    chosen = {name: folders[module] / name for name, module in versions.modules.items()}
    return Programs(versions, newest | chosen)


class _Progress:
    """Says which program is being built, the how-manieth it is, and for how long all of it has taken."""

    def __init__(self, say: Callable[[str], None], total: int) -> None:
        self._say, self._total = say, total
        self._name, self._number, self._began = "", 0, time.monotonic()

    def begin(self, name: str) -> None:
        self._name, self._number = name, self._number + 1

    def tell(self) -> None:
        spent = time.monotonic() - self._began
        self._say(f"building {self._name}, {self._number} of {self._total}, {spent:.0f} s")


def _build_program(module: Path, plan: BuildPlan, program: Program, folder: Path, say: Callable[[], None]) -> None:
    unfinished, log = folder / f"{program.name}.new", folder / f"{program.name}.log"
    command = ["nice", "-n", "10", "go", "build", *plan.flags, "-o", str(unfinished), program.package]
    with log.open("w") as output:
        go = subprocess.Popen(command, cwd=module, env={**os.environ, **GO_ENVIRONMENT}, stdout=output, stderr=output)
        try:
            _wait_saying(go, say)
        finally:
            go.terminate()  # only after an interruption: a finished child is not signalled
            go.wait()
    if go.returncode != 0:
        raise BuildFailed(program.name, log, "\n".join(log.read_text().splitlines()[-LAST_LINES:]))
    unfinished.rename(folder / program.name)


def _wait_saying(child: subprocess.Popen[bytes], say: Callable[[], None]) -> None:
    while True:
        say()
        try:
            child.wait(PROGRESS_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        return
