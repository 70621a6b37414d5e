"""Switching between named configurations, from the label's value to the settings in force."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

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
async def open_control(main: Path, live: LiveSettings) -> AsyncIterator[Control]:
    clock = SystemClock()
    bus, gpus = Bus(clock), ScriptedGpus()
    control = Control(
        bus,
        Conditions(bus, clock, CATALOGUE),
        live,
        load_again=partial(load, main),
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
