"""`python -m tests.conformance` builds h2spec from its Go module, once, into the cache of the cluster's programs."""

import sys
from pathlib import Path

from tests.integration.cluster.making.build import build, read_plan

MODULE = Path(__file__).parent

if __name__ == "__main__":
    build(read_plan(MODULE), lambda text: print(text, file=sys.stderr), MODULE)  # noqa: T201  for people who wait
