"""Makes what the scenarios on machines and images need, once: `python -m tests.integration.machine`."""

import sys
import time

from tests.integration.machine.machine import PACKAGES
from tests.integration.machine.roots import find_cache, make_debian, make_wheelhouse


def main() -> int:
    """Say how long it took, where it took long."""
    began = time.monotonic()
    for make in (make_wheelhouse, make_debian, lambda: make_debian(PACKAGES)):
        make()
    sys.stderr.write(f"roots and wheels are in {find_cache()} after {time.monotonic() - began:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
