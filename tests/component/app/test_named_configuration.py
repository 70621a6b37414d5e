"""Switching between named configurations, from the label's value to the settings in force."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from threading import Event

import anyio
import anyio.to_thread
import pytest

from nodeagent.app.control import Control
from nodeagent.components.fractions.relay import PartsRelay
from nodeagent.components.inventory.relay import ForgettingRelay
from nodeagent.components.mig.relay import ApplyingRelay
from nodeagent.components.offering.relay import ChoosingRelay
from nodeagent.config.live import LiveSettings
from nodeagent.config.load import Loaded, load_settings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.clock import SystemClock
from nodeagent.core.conditions import Conditions
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.errors import ControlRefused
from tests.component.inventory.harness import ScriptedGpus

SHARED = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n"


SECONDS_MAX = 5.0
FILES = {"plain": "{}", "shared": SHARED, "broken": "sharing: 5\n"}


@pytest.fixture
def main(tmp_path: Path) -> Path:
    """The agent's own file, with three named configurations beside it."""
    configs = tmp_path / "configs"
    configs.mkdir()
    for name, text in FILES.items():
        (configs / name).write_text(text)
    file = tmp_path / "config.yaml"
    file.write_text(f"device_plugin: {{config_dir: {configs}, default_config: plain}}\n")
    return file


@pytest.fixture
def live(main: Path) -> LiveSettings:
    """The settings as they are at the start, without a label."""
    return LiveSettings(load(main, "").settings)


def load(main: Path, node_label: str) -> Loaded:
    return load_settings(main, environ={}, node_label=node_label)


def is_shared(live: LiveSettings) -> bool:
    return live.now.sharing.timeSlicing is not None


class NobodyClears:
    """No GPU is cleared here."""

    async def clear_gpu(self, name: str, reason: str, who: str) -> str:
        raise AssertionError("nobody asked for a GPU to be cleared")


@asynccontextmanager
async def open_control(
    main: Path, live: LiveSettings, load_again: Callable[[str], Loaded] | None = None
) -> AsyncIterator[Control]:
    clock = SystemClock()
    bus, gpus = Bus(clock), ScriptedGpus()
    control = Control(
        bus,
        Conditions(bus, clock, CATALOGUE),
        live,
        load_again=load_again or partial(load, main),
        crash=lambda *_: None,
        gpus=gpus,
        faults=None,
        clearing=NobodyClears(),
        forgetting=ForgettingRelay(),
        choosing=ChoosingRelay(),
        applying=ApplyingRelay(),
        parts=PartsRelay(),
    )
    try:
        yield control
    finally:
        control.close()
        gpus.close()


async def test_a_label_puts_its_configuration_in_force(main: Path, live: LiveSettings) -> None:
    """It stays over a reload, and goes with the label."""
    async with open_control(main, live) as control:
        assert not is_shared(live)
        assert "sharing.timeSlicing" in await control.follow_label("shared")
        await control.reload()
        assert is_shared(live)
        await control.follow_label("")
        assert not is_shared(live)


async def test_an_unknown_name_changes_nothing(main: Path, live: LiveSettings) -> None:
    """The present configuration stays, also over a reload, and the reason names those that there are."""
    async with open_control(main, live) as control:
        await control.follow_label("shared")
        with pytest.raises(ControlRefused, match=r"typo.*broken, plain, shared"):
            await control.follow_label("typo")
        await control.reload()
        assert is_shared(live)


async def test_an_invalid_configuration_changes_nothing(main: Path, live: LiveSettings) -> None:
    """What does not load is not put in force."""
    async with open_control(main, live) as control:
        before = live.now
        with pytest.raises(ControlRefused, match="sharing"):
            await control.follow_label("broken")
        assert live.now == before


async def test_a_reload_without_the_file_of_the_label_changes_nothing(main: Path, live: LiveSettings) -> None:
    """Its settings stay in force, it is said why, and the file's return is taken up by the next reload."""
    async with open_control(main, live) as control:
        await control.follow_label("shared")
        file = main.parent / "configs" / "shared"
        file.unlink()
        with pytest.raises(ControlRefused, match=r"'shared'.*broken, plain"):
            await control.reload()
        assert is_shared(live)
        file.write_text("{}")
        await control.reload()
        assert not is_shared(live)


async def test_a_reload_meanwhile_does_not_undo_a_label(main: Path, live: LiveSettings) -> None:
    """It waits until the label is followed, and then reads what that asks for."""
    begun, go_on = Event(), Event()

    def load_slowly(node_label: str) -> Loaded:
        begun.set()
        assert go_on.wait(SECONDS_MAX)
        return load(main, node_label)

    async with open_control(main, live, load_slowly) as control, anyio.create_task_group() as tasks:
        tasks.start_soon(control.follow_label, "shared")
        assert await anyio.to_thread.run_sync(begun.wait, SECONDS_MAX)
        tasks.start_soon(control.reload)
        await anyio.wait_all_tasks_blocked()
        go_on.set()
    assert is_shared(live)
