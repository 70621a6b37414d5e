"""A divisible class: no device of it is given whole, and containers are described to their runtime one by one."""

import json

import pytest
from msgspec.structs import replace

from nodeagent.components.devices.fraction_specs_task import ClassFractionSpecs
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.devices import Standing
from nodeagent.model.errors import DeviceUnhealthy, RequestInvalid
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Binding, Enforcement, FractionTable, GpuFraction
from nodeagent.model.plugin import ContainerMount
from tests.component.devices.harness import THING, X0, X1, World, plan
from tests.support.devices import make_class, make_host, make_node

pytestmark = pytest.mark.virtual_time

G0, G1 = GpuUuid(X0), GpuUuid(X1)
BINDING = Binding(
    number=1,
    reservations=(),
    pod=PodIdentity(namespace="ml", name="one"),
    container="main",
    parts=(GpuFraction(gpu=G0, cores=30, memory_bytes=1 << 30),),
    since_seconds=0.0,
    enforcement=Enforcement.COUNTED,
)
HELD = FractionTable(bindings={1: BINDING})


def find_specs(world: World) -> ClassFractionSpecs:
    return world.plugins.component.get().fraction_specs


async def test_a_divisible_class_is_not_given_whole(world: World) -> None:
    async with world.running(make_class(nodes=["/dev/x*"], divisible=True, memory_mib=1024)):
        assert world.plugins.plugins == {}
        assert world.specs.files == {}
        (state,) = world.table().classes
        assert state.divisible
        assert {each.memory_bytes for each in state.devices} == {1 << 30}


async def test_memory_is_read_from_the_kernels_file(world: World) -> None:
    """And remembered while the file cannot be read; a device of a class that is given whole has none."""
    world.scan.host = make_host(make_node("/dev/x0", pci="0000:3b:00.0"))
    place = "bus/pci/devices/0000:3b:00.0"
    world.sensors.texts[place] = {"mem_info_vram_total": str(64 << 30)}
    async with world.running(make_class(nodes=["/dev/x*"], divisible=True)):
        (device,) = world.table().classes[0].devices
        assert device.memory_bytes == 64 << 30
        world.sensors.texts[place] = {}
        await world.scan_again()
        assert world.find(device.id).memory_bytes == 64 << 30
        await world.reload(plan(make_class(nodes=["/dev/x*"])))
        assert world.find(device.id).memory_bytes is None


async def test_a_container_gets_the_nodes_of_its_devices(world: World) -> None:
    """With all that the class gives, and what it is told."""
    divided = make_class(
        nodes=["/dev/x*"],
        divisible=True,
        memory_mib=1024,
        extra_nodes=["/dev/mgr"],
        environment={"CARDS": "{nodes}"},
        mounts=[{"host": "/opt/lib"}],
    )
    world.scan.host = make_host("/dev/x0", "/dev/x1", "/dev/mgr")
    async with world.running(divided):
        specs = find_specs(world)
        mount = ContainerMount(container_path="/told", host_path="/state/told")
        await specs.write_fraction(("p1", "p2"), (G1,), (mount,), {"TOLD": "30"})
        (content,) = world.specs.files.values()
        said = json.loads(content)
        assert [each["name"] for each in said["devices"]] == ["p1", "p2"]
        assert said["kind"] == "k8s.device-plugin.nvidia.com/part"
        edits = said["devices"][0]["containerEdits"]
        assert [node["path"] for node in edits["deviceNodes"]] == ["/dev/x1", "/dev/mgr"]
        assert edits["env"] == ["CARDS=/dev/x1", "TOLD=30"]
        assert [each["containerPath"] for each in edits["mounts"]] == ["/opt/lib", "/told"]
        assert await specs.list_fractions() == ("p1",)
        await specs.remove_fraction("p1")
        assert await specs.list_fractions() == ()


async def test_a_device_that_is_not_there_is_refused(world: World) -> None:
    divided = make_class(nodes=["/dev/x*"], divisible=True, memory_mib=1024)
    async with world.running(divided):
        specs = find_specs(world)
        with pytest.raises(DeviceUnhealthy, match="not on this node any more"):
            await specs.write_fraction(("p1",), (GpuUuid("DEV-thing-0-x9"),), (), {})
        world.live.replace(plan())
        with pytest.raises(DeviceUnhealthy, match="its class is not in"):
            await specs.write_fraction(("p1",), (G0,), (), {})


async def test_nodes_under_one_name_are_refused(world: World) -> None:
    divided = make_class(
        nodes=["/dev/x*"], divisible=True, memory_mib=1024, container_paths={"/dev/x*": "/dev/the-one"}
    )
    async with world.running(divided):
        with pytest.raises(RequestInvalid, match="/dev/the-one"):
            await find_specs(world).write_fraction(("p1",), (G0, G1), (), {})


async def test_who_has_a_part_holds_the_device(world: World) -> None:
    """Until its container has ended the device is not given whole, and once gone its holder is named."""
    async with world.running():
        assert await world.listed() == {X0: True, X1: True}
        world.bus.publish_state(HELD, source="test")
        await world.settle()
        assert await world.listed() == {X0: False, X1: True}
        await world.become("/dev/x1")
        assert world.find(X0).standing is Standing.GONE
        assert "ml/one (main)" in world.details("device-gone")[X0]
        foreign = replace(BINDING, parts=(GpuFraction(gpu=GpuUuid("GPU-1"), cores=1, memory_bytes=1),))
        world.bus.publish_state(FractionTable(bindings={1: foreign}), source="test")
        await world.settle()
        assert world.details("device-gone") == {}
        assert THING in world.plugins.plugins
