"""A stand-in for the driver's daemon, and components to look after it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodeagent.core.clock import SystemClock
from tests.component.mps.harness import World
from tests.fakes.mps import FakeMps


@pytest.fixture
def fake(short_dir: Path) -> FakeMps:
    return FakeMps(short_dir / "driver")


@pytest.fixture
def make_world(short_dir: Path, fake: FakeMps) -> Iterator[Callable[..., World]]:
    made: list[World] = []

    def make(**settings: Any) -> World:
        made.append(World(SystemClock(), short_dir, fake=fake, **settings))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world()
