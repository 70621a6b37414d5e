"""`nodeagent gpu validate`."""

import argparse

from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import Streams
from nodeagent.edge.host.driver.workload_check import check_workload


def run(_: argparse.Namespace, streams: Streams) -> int:
    """Tell whether this container can use its GPU; the last lines are the message of a pod that failed."""
    problems = check_workload()
    for problem in problems:
        print(f"nodeagent: {problem}", file=streams.err)
    if problems:
        return ExitCode.UNWELL
    print("the GPU of this container can be used", file=streams.out)
    return ExitCode.OK
