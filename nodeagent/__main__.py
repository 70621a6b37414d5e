"""`python -m nodeagent` and the console script."""

import os
import signal
import sys

FIRST_PROCESS = 1


def main() -> None:
    """Run the command line and exit with its code."""
    if os.getpid() == FIRST_PROCESS:
        # From the first process of a container the kernel keeps every signal that has no handler: a pod that is told
        # to stop before the agent listens would hang until it is killed.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    from nodeagent.cli.main import main as run_command_line  # noqa: PLC0415  # it takes longer than all before it

    sys.exit(run_command_line())


if __name__ == "__main__":
    main()
