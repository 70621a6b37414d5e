"""`make house`: how plain the house is, as one table."""

import argparse
import sys
from pathlib import Path

from tests.architecture.house.report import count_rooms, measure, render_json, render_table


def main() -> int:
    """Print the measures; the exit status says nothing of them, as the tests hold what has been reached."""
    parser = argparse.ArgumentParser(prog="python -m tests.architecture.house", description=__doc__)
    parser.add_argument("--root", type=Path, default=Path(), help="the checkout to measure (this one)")
    parser.add_argument("--json", action="store_true", help="with the places that each measure counts")
    parser.add_argument("--rooms", action="store_true", help="pronouns by room instead")
    parser.add_argument("--static", action="store_true", help="start no simulation: nothing of what calls cross")
    options = parser.parse_args()
    if options.rooms:
        for room, (words, pronouns) in sorted(count_rooms(options.root).items(), key=lambda each: -each[1][1]):
            sys.stdout.write(f"{room:<34}{words:>7} words  {pronouns:>5}\n")
        return 0
    rows = list(measure(options.root, not options.static))
    sys.stdout.write(render_json(rows) if options.json else render_table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
