"""Specifications of single containers, which others have written."""

import anyio
import pytest
from msgspec import json

from nodeagent.components.cdi.relay import SpecsUnavailable
from nodeagent.model.driver import DriverPhase
from nodeagent.model.errors import NodeagentError
from tests.component.cdi.test_cdi import SETTLED_SECONDS, Surroundings
from tests.support.samples import make_uuid

pytestmark = pytest.mark.virtual_time

PATH = "/var/run/cdi/k8s.device-plugin.nvidia.com-part-p1.json"


async def test_a_containers_specification_is_written_and_taken_away_when_asked() -> None:
    """It stays through all passes, though no inventory speaks of it; one that is gone may be taken away again."""
    around = Surroundings()
    around.show()
    async with around.running():
        await around.parts.write_part(("p1", "p2"), (make_uuid(1),), (), {})
        await anyio.sleep(SETTLED_SECONDS)
        assert {device["name"] for device in json.decode(around.directories.contents[PATH])["devices"]} == {"p1", "p2"}
        assert around.codes == []
        for _ in range(2):
            await around.parts.remove_part("p1")
        assert PATH not in around.directories.contents


async def test_nobody_is_asked_before_the_driver_works_and_after_the_component_has_ended() -> None:
    """A container would find half a driver."""
    around = Surroundings()
    around.show(phase=DriverPhase.NOT_LOADED)
    for _ in range(2):
        with pytest.raises(SpecsUnavailable, match="cannot be written yet"):
            await around.parts.write_part(("p1",), (make_uuid(1),), (), {})
        with pytest.raises(SpecsUnavailable):
            await around.parts.remove_part("p1")
        around.show()
        async with around.running():
            await around.parts.write_part(("p1",), (make_uuid(1),), (), {})


async def test_a_gpu_that_is_not_there_and_a_disk_that_fails_are_told() -> None:
    """Whoever asked hears of it."""
    around = Surroundings()
    around.show()
    async with around.running():
        with pytest.raises(NodeagentError, match="not on this node"):
            await around.parts.write_part(("p1",), (make_uuid(7),), (), {})
        around.directories.broken = "read-only file system"
        with pytest.raises(NodeagentError, match="read-only"):
            await around.parts.write_part(("p1",), (make_uuid(1),), (), {})
        around.directories.broken = ""
        assert PATH not in around.directories.contents
