"""Devices of any vendor from the host to the kubelet, on virtual time."""

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.config.schema import Settings
from nodeagent.config.sections.plugin import DevicePluginSettings
from nodeagent.core.life.report import Degraded
from nodeagent.model.allocation import Allocation
from nodeagent.model.devices import PciPlace, Standing
from nodeagent.model.errors import DeviceUnhealthy, DeviceUnknown, JournalUnavailable, RequestInvalid
from nodeagent.model.ids import DeviceId, PciAddress, ResourceName
from nodeagent.rules.devices.group import render_id
from tests.component.devices.harness import THING, X0, X1, World, held, plan
from tests.support.devices import make_class, make_host, make_node
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory

pytestmark = pytest.mark.virtual_time

SPEC = "nodeagent-device-example.com-thing.json"
BY_NODES = DevicePluginSettings(device_list_strategy=("envvar",))


async def test_an_answer_leaves_after_the_journal_has_it(world: World) -> None:
    """By name where GPUs are told by name, and the name is written by then."""
    async with world.running():
        assert await world.listed() == {X0: True, X1: True}
        answer = await world.plugin.allocate([X1])
        assert answer.cdi_devices == ("devices.example.com/thing=x1",)
        assert b'"x1"' in world.specs.files[SPEC]
        assert world.journal.recorded == [(X1,)]
        world.journal.refusal = JournalUnavailable("/j", "disk full")
        with pytest.raises(JournalUnavailable):
            await world.plugin.allocate([X0])


async def test_devices_are_told_by_nodes_where_gpus_are(world: World) -> None:
    """No specification is written, and one of before is taken away."""
    world.specs.files = {SPEC: b"{}", "nvidia.com-gpu.json": b"{}"}
    world.live.replace(replace(plan(make_class(nodes=["/dev/x*"])), device_plugin=BY_NODES))
    async with world.running():
        answer = await world.plugin.allocate([X1])
        assert [(each.host_path, each.permissions) for each in answer.devices] == [("/dev/x1", "rw")]
        assert answer.cdi_devices == ()
        assert world.specs.files.keys() == {"nvidia.com-gpu.json"}


async def test_odd_questions_are_refused_and_not_recorded(world: World) -> None:
    """Unknown, none, twice, unhealthy."""
    async with world.running():
        for asked, error in (
            ([DeviceId("DEV-other")], DeviceUnknown),
            ([], RequestInvalid),
            ([X0, X0], RequestInvalid),
        ):
            with pytest.raises(error):
                await world.plugin.allocate(asked)
        await world.hold(held(X0))
        await world.become("/dev/x1")
        with pytest.raises(DeviceUnhealthy, match="its device node is not there"):
            await world.plugin.allocate([X0])
        assert world.journal.recorded == []


async def test_readings_are_published_and_heat_takes_a_device_away(world: World) -> None:
    """A driver that gives no answer takes its own device away, and no other; without a host nothing is known."""
    place, other = (f"bus/pci/devices/0000:{bus}:00.0" for bus in ("03", "23"))
    world.scan.host = make_host(make_node("/dev/x0", pci="0000:03:00.0"), make_node("/dev/x1", pci="0000:23:00.0"))
    world.sensors.texts = {place: {"hwmon/hwmon0/temp1_input": "50000", "hwmon/hwmon0/temp1_crit": "90000"}}
    async with world.running():
        assert world.readings() == {X0: 50.0}
        assert await world.listed() == {X0: True, X1: True}
        world.sensors.texts[place]["hwmon/hwmon0/temp1_input"] = "91000"
        world.sensors.hung.add(other)
        await world.scan_again()
        assert world.readings() == {X0: 91.0}
        assert await world.listed() == {X0: False, X1: False}
        assert "is critical" in world.find(X0).reason
        assert "its sensors give no answer: the driver hangs" in world.find(X1).reason
        world.scan.fails = True
        await world.scan_again()
        assert world.readings() == {}


async def test_devices_that_cannot_be_in_one_container_are_refused_and_not_recorded(world: World) -> None:
    """Both nodes would be at one path."""
    async with world.running(make_class(nodes=["/dev/x*"], container_paths={"/dev/x*": "/dev/modem"})):
        with pytest.raises(RequestInvalid, match="would both be /dev/modem in the container"):
            await world.plugin.allocate([X0, X1])
        assert world.journal.recorded == []
        await world.plugin.allocate([X0])


async def test_a_device_that_goes_while_held_is_named_with_its_holder_and_comes_back(world: World) -> None:
    """After as many clean looks as a GPU needs; who has it keeps it."""
    async with world.running():
        await world.hold(held(X0))
        await world.become("/dev/x1")
        assert await world.listed() == {X1: True, X0: False}
        assert "a/b (c) has it" in world.details("device-gone")[X0]
        with pytest.raises(DeviceUnhealthy):
            await world.plugin.pre_start([X0])
        await world.become("/dev/x0", "/dev/x1")
        assert world.find(X0).standing is Standing.UNHEALTHY
        await anyio.sleep(10)
        assert await world.listed() == {X0: True, X1: True}
        assert world.details("device-gone") == world.details("device-unhealthy") == {}
        await world.plugin.pre_start([X0])
        assert world.journal.identified == [(X0,)]
        assert world.facts() == ["DeviceFound", "DeviceFound", "DeviceLost", "DeviceJudged", "DeviceJudged"]


async def test_a_device_that_nobody_has_goes_and_comes_as_it_likes(world: World) -> None:
    """Without a word of complaint."""
    async with world.running():
        await world.become("/dev/x1")
        assert await world.listed() == {X1: True}
        await world.become("/dev/x0", "/dev/x1")
        assert await world.listed() == {X0: True, X1: True}
        assert world.details("device-gone") == {}
        assert world.facts() == ["DeviceFound", "DeviceFound", "DeviceLost", "DeviceFound"]


async def test_shares_of_a_device_are_counted_each(world: World) -> None:
    """Two containers have it, and what one has twice is given once."""
    async with world.running(make_class(nodes=["/dev/x*"], replicas=2)):
        assert list(await world.listed()) == [f"{X0}::0", f"{X0}::1", f"{X1}::0", f"{X1}::1"]
        answer = await world.plugin.allocate([DeviceId(f"{X0}::0"), DeviceId(f"{X0}::1")])
        assert answer.cdi_devices == ("devices.example.com/thing=x0",)


async def test_health_is_looked_at_in_the_rhythm_of_the_class(world: World) -> None:
    """A file each time, a command each time, and back by clean looks."""
    health = {"sysfs": [{"file": "state", "equals": "on"}], "command": ["probe", "{node}"], "period_seconds": 20}
    world.scan.texts = {f"devices/virtual/x{n}/state": "on" for n in range(2)}
    async with world.running(make_class(nodes=["/dev/x*"], health=health)):
        assert len(world.scan.ran) == 2
        world.scan.said["probe", "/dev/x0"] = "probe ended with 1"
        world.scan.texts["devices/virtual/x1/state"] = "off"
        await anyio.sleep(20)
        assert len(world.scan.ran) == 4
        assert await world.listed() == {X0: False, X1: False}
        assert world.details("device-unhealthy").keys() == {X0, X1}
        world.scan.said.clear()
        world.scan.texts["devices/virtual/x1/state"] = "on"
        await anyio.sleep(20)
        assert await world.listed() == {X0: False, X1: False}
        await anyio.sleep(20)
        assert await world.listed() == {X0: True, X1: True}


async def test_looks_for_another_class_bring_nothing_back(world: World) -> None:
    """Between two of its own they would count what was found once."""
    slow = make_class(nodes=["/dev/x*"], health={"command": ["probe", "{node}"], "period_seconds": 60})
    quick = make_class("b.com/other", nodes=["/dev/y*"], health={"period_seconds": 2})
    world.scan.said["probe", "/dev/x0"] = "probe ended with 1"
    async with world.running(slow, quick):
        world.scan.said.clear()
        await anyio.sleep(110)
        assert await world.listed() == {X0: False, X1: True}
        await anyio.sleep(20)
        assert await world.listed() == {X0: True, X1: True}


async def test_classes_come_and_go_with_the_configuration(world: World) -> None:
    """A specification stays as long as somebody may start again by it."""
    one, two = make_class(nodes=["/dev/x0"]), make_class("b.com/other", nodes=["/dev/x1"])
    async with world.running(one, two):
        other = ResourceName("b.com/other")
        assert world.plugins.list_plugins().keys() == {THING, other}
        held_other = held(render_id(other, "x1"), resource=other)
        await world.hold(held_other)
        await world.reload(plan(one))
        assert world.plugins.plugins.keys() == {THING}
        assert "nodeagent-device-b.com-other.json" in world.specs.files
        await world.hold()
        assert world.specs.files.keys() == {SPEC}
        await world.reload(plan())
        assert world.plugins.plugins == {}


async def test_a_specification_that_cannot_be_written_keeps_its_devices_back(world: World) -> None:
    world.specs.fails = True
    async with world.running():
        assert await world.listed() == {}
        assert "no space left" in world.details("devices-not-named")[THING]
        world.specs.fails = False
        await anyio.sleep(6)
        assert await world.listed() == {X0: True, X1: True}
        assert world.details("devices-not-named") == {}


async def test_a_specification_that_cannot_be_removed_is_tried_again(world: World) -> None:
    """Nothing else waits for it."""
    async with world.running():
        world.specs.fails = True
        await world.reload(replace(plan(make_class(nodes=["/dev/x*"])), device_plugin=BY_NODES))
        assert SPEC in world.specs.files
        world.specs.fails = False
        await anyio.sleep(6)
        assert world.specs.files == {}


async def test_what_is_right_already_is_not_written_again(world: World) -> None:
    async with world.running():
        written = dict(world.specs.files)
    world.specs.writes = 0
    async with world.running():
        assert (world.specs.writes, world.specs.files) == (0, written)


async def test_a_host_that_does_not_answer_changes_nothing(world: World) -> None:
    """The part says so; what was known stands."""
    world.scan.fails = True
    async with world.running():
        assert world.bus.latest(Degraded, "devices") is not None
        world.scan.fails = False
        await anyio.sleep(6)
        assert await world.listed() == {X0: True, X1: True}
        world.scan.fails = True
        await anyio.sleep(6)
        assert world.bus.latest(Degraded, "devices") is not None
        assert await world.listed() == {X0: True, X1: True}
        world.scan.fails = False
        await anyio.sleep(12)
        assert world.bus.latest(Degraded, "devices") is None


async def test_a_host_that_cannot_be_watched_is_looked_at_now_and_then(world: World) -> None:
    """And what comes meanwhile is found all the same."""
    async with world.running():
        world.scan.is_deaf = True
        world.scan.become(make_host("/dev/x0", "/dev/x1"))
        await anyio.sleep(1)
        world.scan.host = make_host("/dev/x0")
        await anyio.sleep(12)
        assert await world.listed() == {X0: True}
        world.scan.is_deaf = False
        await anyio.sleep(12)
        world.scan.become(make_host("/dev/x0", "/dev/x1"))
        await anyio.sleep(1)
        assert await world.listed() == {X0: True, X1: True}


async def test_an_allocation_is_no_reason_to_look_at_the_host(world: World) -> None:
    async with world.running():
        before = world.scan.looks
        await world.hold(held(X0))
        assert world.scan.looks == before


async def test_what_is_near_the_gpu_that_the_container_was_just_given_is_preferred(world: World) -> None:
    """Told when the kubelet asks, from what is known then."""

    def chain(root: str, own: str) -> tuple[str, ...]:
        return (f"pci0000:{root}", f"0000:{root}:00.0", own)

    gpu = make_gpu(1)
    far, near = "0000:10:00.0", "0000:20:00.0"
    world.scan.host = replace(
        make_host(make_node("/dev/x0", pci=far), make_node("/dev/x1", pci=near)),
        functions={
            PciAddress(far): PciPlace(vendor=1, pci_class=1, chain=chain("0f", far)),
            PciAddress(near): PciPlace(vendor=1, pci_class=1, chain=chain("1f", near)),
            gpu.pci.address: PciPlace(vendor=0x10DE, pci_class=3, chain=chain("1f", gpu.pci.address)),
        },
    )
    async with world.running():
        assert world.plugin.prefer([X0, X1], [], 1) == (X0,)
        world.bus.publish_state(make_inventory([make_gpu(0), gpu]), source="test")
        newcomer = Allocation(
            number=1,
            resource=ResourceName("nvidia.com/gpu"),
            devices=(DeviceId(gpu_uuid(1)),),
            since_seconds=world.clock.wall(),
        )
        await world.hold(newcomer)
        assert world.plugin.prefer([X0, X1], [], 1) == (X1,)
        nameless = replace(newcomer, resource=THING, devices=(X1,))
        await world.hold(nameless)
        gpus = [DeviceId(gpu_uuid(index)) for index in range(2)]
        asked = ResourceName("nvidia.com/gpu")
        assert world.plugins.narrow(asked, gpus, [], 1) == gpus[1:]
        assert world.plugins.narrow(asked, gpus, [], 2) == gpus
        await world.hold()
        assert world.plugins.narrow(asked, gpus, [], 1) == gpus
    assert world.plugins.narrow(asked, gpus, [], 1) == gpus


async def test_before_the_first_look_nothing_is_offered(world: World) -> None:
    """Whoever asks is told that there is no such device."""
    assert await world.listed() == {}
    with pytest.raises(DeviceUnknown):
        await world.plugin.allocate([X0])
    await world.plugin.pre_start([X0])
    assert world.plugin.prefer([X0], [], 1) == (X0,)
    assert (world.plugin.resource, world.plugin.options.pre_start) == (THING, True)


async def test_a_device_that_went_while_no_agent_was_there_is_named_with_its_holder(world: World) -> None:
    """By what its id tells; and it comes back like any other."""
    world.scan.host = make_host("/dev/x1")
    async with world.running():
        await world.hold(held(X0))
        assert "x0 is gone while a/b (c) has it" in world.details("device-gone")[X0]
        await world.become("/dev/x0", "/dev/x1")
        await anyio.sleep(11)
        assert await world.listed() == {X0: True, X1: True}
        assert world.details("device-gone") == {}


async def test_a_device_that_somebody_has_whole_is_not_given_in_shares(world: World) -> None:
    async with world.running():
        await world.hold(held(X0))
        await world.reload(plan(make_class(nodes=["/dev/x*"], replicas=2)))
        share = DeviceId(f"{X0}::0")
        assert (await world.listed())[share] is False
        with pytest.raises(DeviceUnhealthy, match="shared otherwise"):
            await world.plugin.allocate([share])


async def test_a_held_device_of_before_is_listed_unhealthy_after_a_restart(world: World) -> None:
    """It is not there, and nothing is known of it but its id."""
    async with world.running():
        await world.hold(held("DEV-thing-gone"))
        assert (await world.listed())["DEV-thing-gone"] is False
        with pytest.raises(DeviceUnhealthy, match="not on this node any more"):
            await world.plugin.pre_start([DeviceId("DEV-thing-gone")])


def test_settings_without_classes_want_nothing() -> None:
    assert Settings().devices.classes == ()
