"""What the settings give every container with a GPU besides, in the specifications of the cdi component."""

from pathlib import Path

import anyio
import pytest

from nodeagent.components.cdi.component import REVIEW_SECONDS
from nodeagent.config.sections.containers import ExtraDevice
from nodeagent.model.ports import ClaimedSpec
from tests.component.cdi.test_cdi import OWN, PUBLIC, SETTLED_SECONDS, Surroundings
from tests.support.files.driver_files import make_node
from tests.support.samples import make_uuid

pytestmark = pytest.mark.virtual_time


async def test_what_a_reload_adds_for_containers_is_written_at_once_and_taken_away_again() -> None:
    """In the files of all kinds, and of the containers and claims that come after it."""
    around = Surroundings()
    around.driver.extra_nodes = (make_node("/dev/fuse"), make_node("/dev/kvm"))
    around.show()
    async with around.running():
        before = dict(around.directories.contents)
        around.add(extra_devices=(ExtraDevice(host=Path("/dev/fuse")),), extra_environment={"POOL": "a"})
        await anyio.sleep(1)
        await around.handle.get().write_fraction(("p1",), (make_uuid(1),), (), {})
        await around.handle.get().write_claim("u1", (ClaimedSpec(name="u1-gpu-0", uuid=make_uuid(0)),))
        added = around.directories.contents.keys() - before.keys()
        assert len(added) == 2
        for path in (OWN, PUBLIC, *added):
            edits = around.read_edits(path)
            assert "POOL=a" in edits["env"]
            assert {"path": "/dev/fuse", "permissions": "rw"} in edits["deviceNodes"]
            assert "/dev/kvm" not in str(edits)
        assert around.codes == []
        around.add()
        await anyio.sleep(1)
        assert {path: around.directories.contents[path] for path in before} == before


async def test_a_device_that_is_missing_is_a_condition_until_it_is_there() -> None:
    """Containers have the rest meanwhile; who is paged reads the setting and the path."""
    around = Surroundings()
    around.add(extra_devices=(ExtraDevice(host=Path("/dev/fuse")),), extra_environment={"POOL": "a"})
    around.show()
    async with around.running():
        await anyio.sleep(SETTLED_SECONDS)
        (condition,) = around.conditions.all_set()
        assert (condition.code, condition.detail) == (
            "cdi-extra-device-missing",
            "containers.extra_devices: /dev/fuse is missing on this host, or no device node",
        )
        assert "POOL=a" in around.read_edits()["env"]
        around.driver.extra_nodes = (make_node("/dev/fuse"),)
        await anyio.sleep(REVIEW_SECONDS + 1)
        assert around.codes == []
        assert {"path": "/dev/fuse", "permissions": "rw"} in around.read_edits()["deviceNodes"]
