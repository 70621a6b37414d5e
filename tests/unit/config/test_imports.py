"""What importing the configuration costs."""

import subprocess
import sys

HEAVY = ("anyio", "aiohttp", "structlog", "asyncio")


def test_import_is_light() -> None:
    """Reading settings needs nothing that runs an agent."""
    code = f"import nodeagent.config.load, sys; print(*[name for name in {HEAVY} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=50)
    assert found.stdout.split() == []
