"""Device nodes that are younger than the specifications that name them: a driver that came back, with other numbers."""

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.model.driver import DriverPhase
from tests.component.cdi.test_cdi import SETTLED_SECONDS, Surroundings

pytestmark = pytest.mark.virtual_time


async def test_files_are_written_anew_once_for_younger_device_nodes() -> None:
    """A runtime keeps the numbers of device nodes until a file changes; a clock that was set back changes nothing."""
    around = Surroundings()
    around.show()
    async with around.running():
        before, written = dict(around.directories.contents), len(around.directories.writes)
        around.driver.files = replace(around.driver.files, nodes_changed_seconds=100.0)
        around.show(phase=DriverPhase.RELEASED)
        around.show()
        await anyio.sleep(SETTLED_SECONDS)
        assert around.directories.writes[written:] == around.directories.writes[:written]
        assert around.directories.contents == before
        assert around.codes == []
        around.show()
        await anyio.sleep(60)
        assert len(around.directories.writes) == 2 * written
