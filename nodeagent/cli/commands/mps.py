"""The command about MPS daemons."""

from nodeagent.cli.commands.shared import ASKING, TABLE
from nodeagent.cli.frame.command import Command, Example
from nodeagent.cli.frame.exit_codes import ExitCode

MPS = Command(
    "mps",
    "daemons by which several processes use a GPU at once: how they stand, their limits, who works through them",
    runs="nodeagent.cli.mps.commands:show",
    exits=(ExitCode.UNWELL, ExitCode.UNREACHABLE),
    description=(
        "Asks the running agent, which looks at servers and clients each `mps.look_seconds`. LIMITS are those of each\n"
        "client. Exit code 1: a daemon is not ready and should be."
    ),
    arguments=(*ASKING, *TABLE),
    examples=(
        Example("nodeagent mps", "each daemon, and below the table each client with its pod"),
        Example("nodeagent mps -o wide", "with process ids, directories and what went wrong last"),
    ),
)
