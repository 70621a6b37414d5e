"""A program that calls the driver, asked line by line."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.component.vgpu.build import build_program
from tests.component.vgpu.talk import Talk
from tests.fakes.cuda.driver import FakeDriver

OUT = "out"
"""An argument that the call writes to."""
LATEST = "12080:0"
"""The route of a program of CUDA 12.8 that asks the driver for its entry points."""


class Caller(Talk):
    """Owns the words of `src/cuda_talk.c`, and the codes and values of the calls."""

    def call(self, symbol: str, *arguments: int | str, route: str = "dlsym") -> tuple[int, ...]:
        return tuple(map(int, self.ask(" ".join(map(str, ["call", route, symbol, *arguments]))).split()))

    def start(self, device: int = 0) -> int:
        """The driver, with the device's primary context current; returns that."""
        assert self.call("cuInit", 0) == (0,)
        code, context = self.call("cuDevicePrimaryCtxRetain", OUT, device)
        assert code == 0
        assert self.call("cuCtxSetCurrent", context) == (0,)
        return context

    def where(self, route: str, symbol: str) -> str:
        """The symbol that this name leads to, after the name of its library."""
        return self.ask(f"where {route} {symbol}")


@contextmanager
def call_driver(driver: FakeDriver | None, environ: Mapping[str, str] | None = None) -> Iterator[Caller]:
    """Such a program on this driver, or on the machine's own."""
    with subprocess.Popen(
        [build_program("cuda_talk")],
        env={**(driver.environ() if driver else {}), **(environ or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Caller(process)
        finally:
            process.kill()
