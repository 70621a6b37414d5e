"""Who looks after the files that containers write exists where containers may have some, and looks where they are."""

import os
import socket
from pathlib import Path
from typing import NoReturn

import anyio
import pytest

from nodeagent.app.endpoints import Listeners
from nodeagent.app.services import Services
from nodeagent.app.wiring.usage import UsageWiring
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.agent import NodeSettings
from nodeagent.config.sections.claims import ClaimsSettings
from nodeagent.config.sections.fractions import FractionsSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.component import ComponentSpec
from nodeagent.edge.host.vgpu.layout import USAGE_BYTES
from nodeagent.edge.host.vgpu.usage_file import create_usage
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.ports import ProcessPlaces
from tests.component.fractions.harness import FakePlaces
from tests.support.virtual_time import FakeClock

PARTS, CLAIMS = FractionsSettings(enabled=True), ClaimsSettings(enabled=True)


class Node:
    """One side of an agent that looks after files."""

    def __init__(self, settings: Settings, made_up: ProcessPlaces | None = None) -> None:
        clock = FakeClock()
        bus = Bus(clock)
        self.conditions = Conditions(bus, clock, CATALOGUE)
        self.side = UsageWiring(Services(bus, self.conditions, clock, LiveSettings(settings)), made_up)

    def list(self) -> tuple[ComponentSpec, ...]:
        def find_no_exporter() -> NoReturn:
            raise AssertionError("no service is asked for")

        public, admin = socket.socketpair()
        with public, admin:
            return self.side.specs(Listeners(public, admin, Path("admin.sock")), (), find_no_exporter)

    def close(self) -> None:
        self.side.close()


@pytest.mark.parametrize(
    ("settings", "is_made_up", "names"),
    [
        (Settings(), False, ()),
        (Settings(claims=CLAIMS), False, ("usage_files",)),
        (Settings(fractions=PARTS), False, ("usage", "usage_files")),
        (Settings(fractions=PARTS, claims=CLAIMS), True, ("usage",)),
    ],
)
async def test_it_exists_where_containers_have_files(
    settings: Settings, is_made_up: bool, names: tuple[str, ...]
) -> None:
    """Also where only claims give parts; not where pods are made up."""
    node = Node(settings, FakePlaces() if is_made_up else None)
    assert tuple(spec.name for spec in node.list()) == names
    node.close()


@pytest.mark.virtual_time
@pytest.mark.may_block("files are made and looked at beside the agent")
async def test_files_of_parts_and_of_shares_are_cut(tmp_path: Path) -> None:
    """Where both lie below the state directory."""
    files = [tmp_path / folder / "usage" for folder in ("parts/a", "shares/b")]
    for file in files:
        file.parent.mkdir(parents=True)
        create_usage(file)
        os.truncate(file, 1 << 30)
    node = Node(Settings(claims=CLAIMS, node=NodeSettings(state_dir=tmp_path)))
    (spec,) = node.list()
    async with anyio.create_task_group() as tasks:
        await tasks.start(lambda *, task_status: spec.build().run(task_status=task_status))
        await anyio.sleep(1)
        tasks.cancel_scope.cancel()
    node.close()
    assert [file.stat().st_size for file in files] == [USAGE_BYTES, USAGE_BYTES]
    assert {each.key for each in node.conditions.all_set() if each.code == "part-usage-grown"} == {"a", "b"}
