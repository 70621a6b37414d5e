"""`python -m tests.originals` fetches what is pinned; with `pin` it pins what the mirror has now."""

import sys

from tests.originals.fetch import main

sys.exit(main(sys.argv[1:]))
