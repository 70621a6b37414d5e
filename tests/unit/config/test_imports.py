"""What importing the configuration costs."""

import subprocess
import sys

HEAVY = ("yaml", "anyio", "aiohttp", "structlog", "asyncio", "difflib")


def test_import_is_light() -> None:
    """Reading settings without a file needs neither PyYAML nor anything that runs an agent."""
    code = f"import nodeagent.config.load, sys; print(*[name for name in {HEAVY} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=50)
    assert found.stdout.split() == []
