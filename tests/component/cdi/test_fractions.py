"""Specifications of single containers, which others have written, for the runtime and for the shim."""

import anyio
import pytest
from msgspec import json
from msgspec.structs import replace

from nodeagent.components.cdi.component import REVIEW_SECONDS
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.errors import NodeagentError, SpecsUnavailable
from nodeagent.model.runtime import RuntimeKind, RuntimeState
from nodeagent.model.shim import Capability, ShimEnv, ShimNode
from nodeagent.rules.cdi_names import FRACTION_KIND
from tests.component.cdi.test_cdi import SETTLED_SECONDS, Surroundings
from tests.component.cdi.test_keep_shim import Node, list_names
from tests.support.samples import make_uuid

pytestmark = pytest.mark.virtual_time

PATH = "/var/run/cdi/k8s.device-plugin.nvidia.com-part-p1.json"


async def test_a_containers_specification_is_written_and_taken_away_when_asked() -> None:
    """It stays through all passes, though no inventory speaks of it; one that is gone may be taken away again."""
    around = Surroundings()
    around.show()
    async with around.running():
        await around.handle.get().write_fraction(("p1", "p2"), (make_uuid(1),), (), {})
        await anyio.sleep(SETTLED_SECONDS)
        assert {device["name"] for device in json.decode(around.directories.contents[PATH])["devices"]} == {"p1", "p2"}
        assert around.codes == []
        for _ in range(2):
            await around.handle.get().remove_fraction("p1")
        assert PATH not in around.directories.contents


async def test_nobody_is_asked_before_the_driver_works_and_after_the_component_has_ended() -> None:
    """A container would find half a driver."""
    around = Surroundings()
    around.show(phase=DriverPhase.NOT_LOADED)
    for _ in range(2):
        with pytest.raises(SpecsUnavailable, match="cannot be written yet"):
            await around.handle.get().write_fraction(("p1",), (make_uuid(1),), (), {})
        with pytest.raises(SpecsUnavailable):
            await around.handle.get().remove_fraction("p1")
        around.show()
        async with around.running():
            await around.handle.get().write_fraction(("p1",), (make_uuid(1),), (), {})


async def test_a_driver_that_came_late_and_cannot_be_described_yet_is_told() -> None:
    """Where GPUs were done without nothing is planned: whoever asks in between is told why, and is served after."""
    around = Surroundings()
    around.bus.publish_state(DriverState(phase=DriverPhase.NO_HARDWARE, is_needed=False), source="test")
    async with around.running():
        with pytest.raises(SpecsUnavailable, match="cannot be written yet"):
            await around.handle.get().write_fraction(("p1",), (make_uuid(1),), (), {})
        with pytest.raises(SpecsUnavailable):
            await around.handle.get().write_claim("c1", ())
        around.show()
        await anyio.sleep(SETTLED_SECONDS)
        await around.handle.get().write_fraction(("p1",), (make_uuid(1),), (), {})


async def test_a_gpu_that_is_not_there_and_a_disk_that_fails_are_told() -> None:
    """Whoever asked hears of it."""
    around = Surroundings()
    around.show()
    async with around.running():
        with pytest.raises(NodeagentError, match="not on this node"):
            await around.handle.get().write_fraction(("p1",), (make_uuid(7),), (), {})
        around.directories.broken = "read-only file system"
        with pytest.raises(NodeagentError, match="read-only"):
            await around.handle.get().write_fraction(("p1",), (make_uuid(1),), (), {})
        around.directories.broken = ""
        assert PATH not in around.directories.contents


def through_shim(*, cdi: bool = False) -> RuntimeState:
    return RuntimeState(kind=RuntimeKind.CONTAINERD, version="1.6.20", cdi_enabled=cdi, through_shim=True)


async def test_the_shim_knows_a_container_before_it_is_created_where_the_runtime_takes_no_cdi() -> None:
    """Under its names beside all that the node has, and asked by mounts, until it has ended."""
    node = Node()
    node.bus.publish_state(through_shim(), source="test")
    node.show()
    async with node.running():
        assert node.shim.table is not None
        before = node.shim.table[1]
        await node.handle.get().write_fraction(("p1", "p2"), (make_uuid(1),), (), {"A": "b"})
        table = node.shim.table[1]
        names = {f"{FRACTION_KIND}={each}" for each in ("p1", "p2")}
        assert list_names(table, "cdi") == list_names(before, "cdi") | names
        assert (before.policy.accept_mounts, table.policy.accept_mounts) == (False, True)
        part = next(device for device in table.devices if f"{FRACTION_KIND}=p1" in device.names)
        told = [entry for edits in part.edits for entry in edits]
        assert ShimEnv(wanted_by=Capability.ALWAYS, name="A", value="b") in told
        assert [entry.path for entry in told if isinstance(entry, ShimNode)].count("/dev/nvidia1") == 1
        await node.handle.get().remove_fraction("p1")
        node.shim.marks = (("/boot", "2"),)
        await anyio.sleep(REVIEW_SECONDS + 1)
        assert node.shim.table[1] == replace(before, fresh=node.shim.marks)


async def test_the_shim_hears_nothing_of_parts_that_the_runtime_itself_gives() -> None:
    """A table is not written for each container where nobody looks there."""
    node = Node()
    node.bus.publish_state(through_shim(cdi=True), source="test")
    node.show()
    async with node.running():
        written = len(node.shim.tables)
        await node.handle.get().write_fraction(("p1",), (make_uuid(1),), (), {})
        assert len(node.shim.tables) == written


async def test_a_table_that_cannot_be_kept_yet_has_the_container_with_its_first_pass() -> None:
    """The kubelet asks again for one that was not created."""
    node = Node()
    node.shim.broken = "read-only file system"
    node.bus.publish_state(through_shim(), source="test")
    node.show()
    async with node.running():
        await node.handle.get().write_fraction(("p1",), (make_uuid(1),), (), {})
        assert node.shim.tables == []
        node.shim.broken = ""
        await anyio.sleep(REVIEW_SECONDS + 1)
        assert node.shim.table is not None
        assert f"{FRACTION_KIND}=p1" in list_names(node.shim.table[1], "cdi")
        node.shim.broken = "no space left on device"
        with pytest.raises(NodeagentError, match="no space left"):
            await node.handle.get().write_fraction(("p2",), (make_uuid(1),), (), {})
