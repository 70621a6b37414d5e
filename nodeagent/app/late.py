"""Components not needed by pods: loaded and started after the components that pods wait for.

Loading the web server, the metrics, the labels and the client of the API server takes longer than everything before
the first `Register`. Owns the loading thread, and the moment when loading begins: the devices are registered, or there
is no driver, or the wait is so long that people want to see why.
"""

import gc
import sys
from collections.abc import Callable
from importlib import import_module

import anyio
from anyio.abc import TaskStatus

from nodeagent.core.channels.bus import Bus
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.life.component import Component
from nodeagent.core.life.gates import Gates
from nodeagent.model.driver import DriverState

PATIENCE_SECONDS = 0.5
"""How long late components wait: a driver may take longer to answer, and the processor is idle meanwhile."""
LOAD_SECONDS = 60.0


class LateStart:
    """When late components begin, and the thread that loads them."""

    def __init__(
        self, bus: Bus, read_gates: Callable[[], Gates], after: str | None, first: tuple[str, ...] = ()
    ) -> None:
        """Wire the late start.

        Args:
            bus: Publishes whether there is a driver.
            read_gates: The gates of the agent.
            after: The gate that opens when the devices are registered; `None` where there are no devices to register.
            first: Modules loaded before all others, whichever component comes first.
        """
        self._bus, self._read_gates, self._after, self._first = bus, read_gates, after, first
        self._thread = WorkerThread("loader")
        self._loaded: set[str] = set()
        self._is_over = after is None

    def wrap(self, name: str, build: Callable[[], Component], *modules: str) -> Component:
        """A component built of these modules when its turn has come."""
        return _LateComponent(self, name, build, modules)

    async def load(self, modules: tuple[str, ...]) -> None:
        """Load these modules, once late components may begin."""
        await self._wait_turn()
        for each in (self._first, modules):
            await self._load(each)

    async def _load(self, modules: tuple[str, ...]) -> None:
        # A module in `sys.modules` may still be loading in the thread: to wait for it here would hold up the loop.
        if not self._loaded.issuperset(modules):
            with anyio.CancelScope(shield=True):  # half a module is useless: a stop waits for the rest of a second
                what = f"loading {modules[0]}"
                await self._thread.run(lambda: _import_all(modules), timeout_seconds=LOAD_SECONDS, what=what)
            self._loaded.update(modules)

    def close(self) -> None:
        """Let the thread end."""
        self._thread.close()

    async def _wait_turn(self) -> None:
        if not self._is_over and self._after is not None:
            with anyio.move_on_after(PATIENCE_SECONDS):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._wait_without_driver, tasks.cancel_scope, name="late start: driver")
                    await self._read_gates().wait_open(self._after)
                    tasks.cancel_scope.cancel()
        self._is_over = True

    async def _wait_without_driver(self, race: anyio.CancelScope) -> None:
        with self._bus.watch(DriverState, client="late start") as states:
            async for state in states:
                if not state.value.ready:
                    race.cancel()


class _LateComponent:
    """Stands in for a component until its modules are loaded."""

    def __init__(self, start: LateStart, name: str, build: Callable[[], Component], modules: tuple[str, ...]) -> None:
        self.name = name
        self._start, self._build, self._modules = start, build, modules

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Load, build and run the component."""
        await self._start.load(self._modules)
        await self._build().run(task_status=task_status)


def _import_all(names: tuple[str, ...]) -> None:
    """Import modules outside of garbage collection: imported objects are never garbage."""
    if all(name in sys.modules for name in names):
        return
    gc.disable()
    try:
        for name in names:
            import_module(name)
        gc.freeze()
    finally:
        gc.enable()
