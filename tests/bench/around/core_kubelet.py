"""The stand-in kubelet with the calls that count made by gRPC's C core, in a process of its own.

Run as `python -m tests.bench.around.core_kubelet --dir D --rounds N --size K [--resource R]`; prints one JSON line.
"""

import sys
from functools import partial

from nodeagent_sim.kubelet import __main__ as process
from tests.bench.around.callers import BlockingPluginClient

if __name__ == "__main__":
    sys.exit(process.main(dial=partial(BlockingPluginClient, caller="core")))
