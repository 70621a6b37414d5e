"""`python -m nodeagent` and the console script."""

import sys

from nodeagent.cli.main import main as run_command_line


def main() -> None:
    """Run the command line and exit with its code."""
    sys.exit(run_command_line())


if __name__ == "__main__":
    main()
