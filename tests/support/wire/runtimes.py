"""Container runtimes for tests: what a test may ask of one, whether it is the stand-in or the real one."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol


class RuntimeUnderTest(Protocol):
    """The least that the contract needs."""

    @property
    def socket(self) -> Path: ...

    async def run_pod(self, name: str) -> str:
        """Have a pod's one container run; returns its id."""

    async def end_pod(self, name: str) -> str:
        """Have a pod's one container run to its end, and be kept; returns its id."""


OpenRuntime = Callable[[], AbstractAsyncContextManager[RuntimeUnderTest]]
