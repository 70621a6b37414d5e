"""`python -m tests.integration.matrix WORDS…`: the scenarios of every version on each cluster of the matrix in turn.

Builds what is missing first, says which cluster has its turn, and ends with a line for each. The words are pytest's;
without any, all scenarios of every version run.
"""

import os
import subprocess
import sys
from collections.abc import Sequence

from tests.integration.cluster.errors import ClusterError
from tests.integration.cluster.making.build import build_programs
from tests.integration.cluster.making.requirements import require_cluster_machine
from tests.integration.cluster.versions import MATRIX, VARIABLE, Versions


def main(words: Sequence[str]) -> int:
    """Run all of the matrix to its end; 0 where no cluster of it has failed."""
    try:
        require_cluster_machine()
        for text in MATRIX:
            build_programs(Versions.parse(text), say)
    except ClusterError as error:
        say(str(error))
        return error.exit_status
    statuses = {text: run(text, words) for text in MATRIX}
    for text, status in statuses.items():
        say(f"{'passed' if status == 0 else f'failed with status {status}':24} {text}")
    return int(any(statuses.values()))


def run(text: str, words: Sequence[str]) -> int:
    """The exit status of the scenarios on one cluster."""
    say(f"the cluster with {text}")
    command = (sys.executable, "-m", "pytest", "tests/integration", "-m", "every_version", *words)
    return subprocess.run(command, env={**os.environ, VARIABLE: text}, check=False).returncode


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - the voice of a command line


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
