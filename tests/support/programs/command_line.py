"""The command line run in the test's own process, with what it prints caught."""

import io

from nodeagent.cli.commands import ROOT
from nodeagent.cli.frame.parser import build_parser
from nodeagent.cli.main import Streams, run_command_line


def run_here(*words: str) -> tuple[int, str, str]:
    """Exit code, output and complaints of `nodeagent` with these words; the code is one that its help names."""
    out, err = io.StringIO(), io.StringIO()
    code = run_command_line(words, Streams(out, err))
    documented = build_parser(ROOT, words).parse_args(words).chosen.exit_codes
    assert code in documented, f"nodeagent {' '.join(words)} ended with {code}, which its --help does not name"
    return code, out.getvalue(), err.getvalue()
