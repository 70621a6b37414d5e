"""Waiting for what has no event to wait for: another process, a log line, a counter."""

from collections.abc import Callable

import anyio

PATIENCE_SECONDS = 20.0
"""Far beyond what a slow machine needs; reached only by a failure."""


async def wait_until(is_so: Callable[[], object]) -> None:
    """Return when `is_so()` is true; TimeoutError when it does not become so."""
    with anyio.fail_after(PATIENCE_SECONDS):
        while not is_so():  # noqa: ASYNC110  # the very purpose of this function
            await anyio.sleep(0.001)
