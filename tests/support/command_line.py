"""The command line run in the test's own process, with what it prints caught."""

import io

from nodeagent.cli.main import Streams, run_command_line


def run_here(*words: str) -> tuple[int, str, str]:
    """Exit code, output and complaints of `nodeagent` with these words."""
    out, err = io.StringIO(), io.StringIO()
    code = run_command_line(words, Streams(out, err))
    return code, out.getvalue(), err.getvalue()
