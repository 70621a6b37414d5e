"""When the components that no pod waits for begin, and how they are loaded."""

import gc
import sys
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskStatus

from nodeagent.app.late import PATIENCE_SECONDS, LateStart
from nodeagent.core.channels.bus import Bus
from nodeagent.core.life.gates import Gates
from nodeagent.model.driver import DriverPhase, DriverState
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time

REGISTERED = "plugin_registered"


class Part:
    """A component that only says that it has started."""

    name = "part"

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        task_status.started()
        await anyio.sleep_forever()


class Node:
    """A bus, a gate, and whoever waits for it."""

    def __init__(self, clock: FakeClock, after: str | None = REGISTERED, first: tuple[str, ...] = ()) -> None:
        self.bus = Bus(clock)
        self.gates = Gates((REGISTERED,), clock=clock)
        self.late = LateStart(self.bus, lambda: self.gates, after, first)
        self.built = 0

    def build(self) -> Part:
        self.built += 1
        return Part()

    async def time_start(self, *modules: str) -> float:
        """Seconds until the part has started."""
        began = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            await tasks.start(self.late.wrap("part", self.build, *modules).run)
            took = anyio.current_time() - began
            tasks.cancel_scope.cancel()
        self.late.close()
        return took

    async def after(self, seconds: float, phase: DriverPhase | None = None) -> None:
        """Let something happen: the driver is seen, or the devices are registered."""
        await anyio.sleep(seconds)
        if phase is None:
            self.gates.open(REGISTERED)
        else:
            self.bus.publish_state(DriverState(phase=phase), source="driver")


@pytest.mark.parametrize(
    ("phase", "due"), [(None, 0.2), (DriverPhase.NOT_LOADED, 0.2), (DriverPhase.READY, PATIENCE_SECONDS)]
)
async def test_the_late_begin_when_nobody_is_held_up(clock: FakeClock, phase: DriverPhase | None, due: float) -> None:
    """At the registration, at once without a driver, and otherwise before people wonder."""
    node = Node(clock)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(node.after, 0.2, phase)
        assert await node.time_start() == pytest.approx(due)
    assert node.built == 1


async def test_only_the_first_start_waits(clock: FakeClock) -> None:
    """After a crash a component is back at once, whatever became of the devices."""
    node = Node(clock)
    assert await node.time_start() == pytest.approx(PATIENCE_SECONDS)
    assert await node.time_start() == 0


async def test_nothing_waits_for_devices_that_nobody_registers(clock: FakeClock) -> None:
    """With the device plugin switched off the late are not late."""
    assert await Node(clock, after=None).time_start() == 0


async def test_modules_are_there_before_the_component_is_built(
    clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loaded in a thread of its own, with nothing collected meanwhile, and the interpreter's settings as before."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "late_part_a.py").write_text("import gc, threading\nseen = gc.isenabled(), threading.current_thread()")
    before = sys.getswitchinterval()
    node = Node(clock, after=None)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    try:
        await node.time_start("late_part_a", "sys")
        collects, thread = sys.modules["late_part_a"].seen
    finally:
        sys.modules.pop("late_part_a", None)
    assert (collects, thread.name) == (False, "loader")
    assert (gc.isenabled(), sys.getswitchinterval()) == (True, before)


async def test_what_pods_wait_for_is_loaded_before_all_else(
    clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is the first to be loaded."""
    monkeypatch.syspath_prepend(tmp_path)
    names = ("late_first", "late_part_b")
    for name in names:
        (tmp_path / f"{name}.py").write_text(
            "import sys\nbefore = 'late_first' in sys.modules, 'late_part_b' in sys.modules"
        )
    node = Node(clock, after=None, first=names[:1])
    monkeypatch.setattr(gc, "freeze", lambda: None)
    try:
        await node.time_start("late_part_b")
        assert [sys.modules[name].before for name in names] == [(True, False), (True, True)]
    finally:
        for name in names:
            sys.modules.pop(name, None)


async def test_a_module_that_cannot_be_loaded_is_the_components_failure(clock: FakeClock) -> None:
    """The supervisor sees a crash like any other."""
    node = Node(clock, after=None)
    with pytest.raises(ExceptionGroup) as raised:
        await node.time_start("nodeagent.components.of_another_agent")
    assert raised.group_contains(ModuleNotFoundError)
    assert (node.built, gc.isenabled()) == (0, True)
    node.late.close()
