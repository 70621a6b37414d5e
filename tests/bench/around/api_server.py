"""The stand-in API server in a thread of its own, so that a measurement can wait for what reaches it."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from tests.fakes.apiserver import NODE, FakeApiServer

PATIENCE_SECONDS = 60.0
POLL_INTERVAL_SECONDS = 0.002


class ApiServerThread:
    """One server with one node; read from outside, for nothing in it is ever half written."""

    def __init__(self) -> None:
        self.server = FakeApiServer()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="API server")
        self._thread.start()
        self._run(self.server.start())

    def set_label(self, key: str, value: str | None) -> None:
        self._loop.call_soon_threadsafe(self.server.put_label, key, value)

    def wait_label(self, key: str, value: str, *, writes: int = 0) -> float:
        """The moment at which the node's label said this, after so many writes in all."""

        def is_so() -> bool:
            return len(self.server.writes) >= writes and self.server.labels(NODE).get(key) == value

        return self.wait_for(is_so, f"{key}={value}")

    def wait_for(self, is_so: Callable[[], bool], what: str) -> float:
        end = time.perf_counter() + PATIENCE_SECONDS
        while time.perf_counter() < end:
            if is_so():
                return time.perf_counter()
            time.sleep(POLL_INTERVAL_SECONDS)
        raise TimeoutError(f"the API server never had {what}")

    def close(self) -> None:
        self._run(self.server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_SECONDS)


@contextmanager
def api_server() -> Iterator[ApiServerThread]:
    served = ApiServerThread()
    try:
        yield served
    finally:
        served.close()
