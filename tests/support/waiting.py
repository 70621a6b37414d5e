"""Waiting for what has no event to wait for: another process, a log line, a counter."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import anyio

T = TypeVar("T")

PATIENCE_SECONDS = 20.0
"""Far beyond what a slow machine needs; reached only by a failure."""


async def wait_until(is_so: Callable[[], object]) -> None:
    """Return when `is_so()` is true; TimeoutError when it does not become so."""
    with anyio.fail_after(PATIENCE_SECONDS):
        while not is_so():  # noqa: ASYNC110  # the very purpose of this function
            await anyio.sleep(0.001)


@contextmanager
def hanging() -> Iterator[Callable[..., Any]]:
    """A call that hangs as long as the block lasts: what a driver or a disk does that never answers."""
    has_ended = threading.Event()

    def hang(*_: object, **__: object) -> None:
        has_ended.wait()

    try:
        yield hang
    finally:
        has_ended.set()


async def in_thread(work: Callable[[], T]) -> T:
    """What `work` returns, while the loop goes on; its thread ends with it."""
    outcome: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:  # noqa: BLE001  raised again where it is waited for
            errors.append(error)

    thread = threading.Thread(target=run, name="in_thread", daemon=True)
    thread.start()
    await wait_until(lambda: not thread.is_alive())
    if errors:
        raise errors[0]
    return outcome[0]
