"""What the log brings along, and what it does not."""

import subprocess
import sys

import pytest

LEAN = """
import sys
from nodeagent.core.log.lines import configure_logging, get_logger
configure_logging(form="console")
get_logger(component="test").info("line_written")
assert not any(name.split(".")[0] == "rich" for name in sys.modules), "rich was imported"
"""

ALREADY_THERE = """
import sys, structlog
before = set(sys.modules)
from nodeagent.core.log.lines import configure_logging
configure_logging(form="json")
assert sys.modules["structlog"] is structlog
"""

RICH_WANTED = """
import sys, types
sys.modules["rich"] = mine = types.ModuleType("rich")
mine.__path__ = []
from nodeagent.core.log import lines as log
try:
    log.configure_logging(form="json")
except ImportError:
    pass
assert sys.modules["rich"] is mine, "another program's module was taken away"
"""


@pytest.mark.parametrize("program", [LEAN, ALREADY_THERE, RICH_WANTED])
def test_the_log_loads_no_more_than_it_needs(program: str) -> None:
    """A library that only draws stack traces is left out, and nobody else's modules are touched."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
