"""The simulation's ports: they wait, are cut off, are woken, and refuse, as the real edge does."""

import gc
import weakref
from collections.abc import AsyncIterator

import anyio
import pytest

from nodeagent.model.errors import DriverMismatch, DriverReleased, DriverStuck, DriverUnavailable, GpuUnknown
from nodeagent.model.events import GpuEventReported, XidReported
from nodeagent.model.ports import DriverProbe, DriverTool, FaultInjector, GpuEvent, GpuSource
from nodeagent_sim.gpus.profile import load_profile
from nodeagent_sim.gpus.source import EVENTS_KEPT, SimulatedGpus
from tests.support.virtual_time import START_WALL, FakeClock

pytestmark = pytest.mark.virtual_time

T4 = load_profile("t4")
DGX = load_profile("dgx-h100")
DEADLINE = 5.0


@pytest.fixture
def gpus(clock: FakeClock) -> SimulatedGpus:
    return SimulatedGpus(DGX, node_name="node-1", seed=3, deadline_seconds=DEADLINE, clock=clock)


async def take(events: AsyncIterator[GpuEvent], count: int) -> list[GpuEvent]:
    return [await anext(events) for _ in range(count)]


async def test_one_object_is_all_three_ports(gpus: SimulatedGpus) -> None:
    """The type checker agrees that it is probe, source and injector, and all speak of one node."""
    probe: DriverProbe = gpus
    source: GpuSource = gpus
    injector: FaultInjector = gpus
    assert (await probe.read_evidence()).library is not None
    assert len((await source.read_inventory()).gpus) == 8
    assert "xid NUMBER GPU" in injector.known_faults[0]


async def test_sample_says_when_it_was_taken(gpus: SimulatedGpus) -> None:
    """Wall time of the beginning, and how long it took."""
    await anyio.sleep(7)
    await gpus.inject("slow", ["2"])
    sample = await gpus.read_sample()
    assert sample.time_seconds == START_WALL + 7
    assert sample.took_seconds == pytest.approx(2)
    assert sample.call_count > 0


async def test_time_moves_the_world(gpus: SimulatedGpus) -> None:
    """The meter runs with the clock that was handed in, without anyone else's help."""
    before = (await gpus.read_sample()).gpus[0].energy_millijoules
    await anyio.sleep(100)
    after = (await gpus.read_sample()).gpus[0].energy_millijoules
    assert before is not None
    assert after is not None
    assert 60_000 * 100 < after - before <= 700_000 * 100


async def test_hung_call_is_cut_off_by_its_deadline(gpus: SimulatedGpus) -> None:
    """It really waits, for the deadline and no longer, and only the call that hangs."""
    await gpus.inject("hang", ["sample", "forever"])
    began = anyio.current_time()
    with pytest.raises(DriverStuck, match="the call sample did not come back within 5 s"):
        await gpus.read_sample()
    assert anyio.current_time() - began == pytest.approx(DEADLINE)
    await gpus.read_inventory()
    assert (await gpus.read_evidence()).stuck == ""
    assert anyio.current_time() - began == pytest.approx(DEADLINE)


async def test_hang_that_ends_in_time_is_only_slow(gpus: SimulatedGpus) -> None:
    """Less than the deadline is an answer; the next call is quick again."""
    await gpus.inject("hang", ["all", "3"])
    began = anyio.current_time()
    assert len((await gpus.read_inventory()).gpus) == 8
    assert anyio.current_time() - began == pytest.approx(3)
    await gpus.read_sample()
    assert anyio.current_time() - began == pytest.approx(3)


async def test_hung_look_is_evidence(gpus: SimulatedGpus) -> None:
    """The probe never raises: a look that does not come back is itself what was seen."""
    await gpus.inject("hang", ["all"])
    evidence = await gpus.read_evidence()
    assert evidence.stuck == "the call evidence did not come back within 5 s"
    assert evidence.library is None
    assert evidence.module_loaded
    await gpus.inject("clear", [])
    evidence = await gpus.read_evidence()
    assert evidence.stuck == ""
    assert evidence.library is not None


async def test_clear_frees_a_call_that_is_waiting(gpus: SimulatedGpus) -> None:
    """A hang that is taken back lets go at once."""
    await gpus.inject("hang", ["inventory"])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(gpus.read_inventory)
        await anyio.sleep(1)
        await gpus.inject("clear", [])
        began = anyio.current_time()
    assert anyio.current_time() == began


async def test_too_slow_is_stuck(gpus: SimulatedGpus) -> None:
    """Delay beyond the deadline is a hang to whoever waits."""
    await gpus.inject("slow", ["6"])
    with pytest.raises(DriverStuck):
        await gpus.read_inventory()


async def test_absent_driver_refuses_every_call(gpus: SimulatedGpus) -> None:
    """Without a module nothing can be read, and the message says what was attempted and why not."""
    events = gpus.events()
    await gpus.inject("driver", ["gone"])
    with pytest.raises(DriverUnavailable, match="cannot enumerate GPUs: the driver is not loaded"):
        await gpus.read_inventory()
    with pytest.raises(DriverUnavailable, match="cannot read GPUs"):
        await gpus.read_sample()
    with pytest.raises(DriverUnavailable, match="cannot watch events"):
        await anext(events)
    assert not (await gpus.read_evidence()).module_loaded
    await gpus.inject("driver", ["back", "580.105.08"])
    assert len((await gpus.read_inventory()).gpus) == 8
    assert (await gpus.read_evidence()).module_version == "580.105.08"


async def test_driver_that_goes_during_a_call_fails_it(gpus: SimulatedGpus) -> None:
    """What was true when the call began does not make its answer true."""
    await gpus.inject("slow", ["2"])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(gpus.inject, "driver", ["gone"])
        with pytest.raises(DriverUnavailable):
            await gpus.read_inventory()


async def test_replaced_library_is_a_mismatch(gpus: SimulatedGpus) -> None:
    """The error names both versions."""
    await gpus.inject("driver", ["mismatch", "580.1"])
    with pytest.raises(DriverMismatch, match=r"580\.1 does not fit kernel module 570\.172\.08"):
        await gpus.read_sample()


async def test_released_driver_is_not_touched_until_resumed(gpus: SimulatedGpus) -> None:
    """Every call refuses with the reason, the evidence shows it, and resume gives all of it back."""
    events = gpus.events()
    await gpus.release("driver upgrade")
    for call in (gpus.read_inventory, gpus.read_sample):
        with pytest.raises(DriverReleased, match="driver upgrade"):
            await call()
    with pytest.raises(DriverReleased):
        await anext(events)
    evidence = await gpus.read_evidence()
    assert (evidence.released, evidence.library, evidence.module_loaded) == ("driver upgrade", None, True)
    await gpus.inject("driver", ["back", "580.105.08"])
    await gpus.resume()
    evidence = await gpus.read_evidence()
    assert evidence.released == ""
    assert evidence.library is not None
    assert evidence.library.driver_version == "580.105.08"


async def test_release_does_not_wait_for_a_hung_call(gpus: SimulatedGpus) -> None:
    """The call that hangs is given up at once, with the release as its reason."""
    await gpus.inject("hang", ["all"])
    began = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(gpus.release, "")
        with pytest.raises(DriverReleased, match="on request"):
            await gpus.read_inventory()
    assert (await gpus.read_evidence()).released == "on request"
    assert anyio.current_time() == began


async def test_events_tell_every_listener_in_order(gpus: SimulatedGpus) -> None:
    """Each listener gets all that happens after it began, also what happens while it is busy elsewhere."""
    first, second = gpus.events(), gpus.events()
    await gpus.inject("xid", ["13", "0"])
    late = gpus.events()
    await gpus.inject("mig", ["1", "empty"])
    found = (await gpus.read_inventory()).gpus
    told = [XidReported(gpu=found[0].uuid, xid=13), GpuEventReported(gpu=found[1].uuid, kind="mig_layout")]
    assert await take(first, 2) == told
    assert await take(second, 2) == told
    assert await take(late, 1) == told[1:]


async def test_waiting_listener_is_woken_at_once(gpus: SimulatedGpus) -> None:
    """An event reaches a listener that waits without any time passing."""
    events = gpus.events()
    seen: list[tuple[float, GpuEvent]] = []

    async def listen() -> None:
        for _ in range(2):
            event = await anext(events)
            seen.append((anyio.current_time(), event))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listen)
        await anyio.sleep(10)
        await gpus.inject("xid", ["13", "on", "gpu", "5"])
        await anyio.sleep(10)
        await gpus.inject("xid", ["79", "on", "gpu", "5"])
    uuid = (await gpus.read_inventory()).gpus[5].uuid
    assert seen == [(10.0, XidReported(gpu=uuid, xid=13)), (20.0, XidReported(gpu=uuid, xid=79))]


async def test_listener_that_sleeps_loses_the_oldest(gpus: SimulatedGpus) -> None:
    """What is kept for a slow listener is bounded, and the newest is what is kept."""
    events = gpus.events()
    for number in range(1, EVENTS_KEPT + 101):
        await gpus.inject("xid", [str(200 + number), "0"])
    seen = [event.xid for event in await take(events, EVENTS_KEPT) if isinstance(event, XidReported)]
    assert seen == list(range(301, 301 + EVENTS_KEPT))


async def test_listeners_leave_nothing_behind(gpus: SimulatedGpus) -> None:
    """A listener that just goes away is gone: the source holds on to none of them."""
    events = gpus.events()
    await gpus.inject("xid", ["13", "0"])
    await anext(events)
    gone = weakref.ref(events)
    del events
    gc.collect()
    assert gone() is None


async def test_change_wakes_the_probe_at_once(gpus: SimulatedGpus) -> None:
    """Waiting for a change ends with the injection, and again with release and resume."""
    await gpus.read_evidence()
    woken: list[float] = []

    async def watch() -> None:
        for _ in range(3):
            await gpus.wait_change()
            woken.append(anyio.current_time())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        await anyio.sleep(4)
        await gpus.inject("driver", ["gone"])
        await anyio.sleep(4)
        await gpus.release("work")
        await anyio.sleep(4)
        await gpus.resume()
    assert woken == [4.0, 8.0, 12.0]


async def test_change_between_look_and_wait_is_not_missed(gpus: SimulatedGpus) -> None:
    """What happens after the look began ends the wait before it begins, once."""
    await gpus.read_evidence()
    await gpus.inject("driver", ["gone"])
    with anyio.fail_after(1):
        await gpus.wait_change()
    with anyio.move_on_after(1) as scope:
        await gpus.wait_change()
    assert scope.cancelled_caught


async def test_end_of_a_hang_is_a_change(gpus: SimulatedGpus) -> None:
    """The probe looks again when the driver comes back by itself."""
    await gpus.inject("hang", ["all", "30"])
    await gpus.read_evidence()
    await gpus.wait_change()
    assert anyio.current_time() == pytest.approx(30)


async def test_refused_fault_changes_nothing(gpus: SimulatedGpus) -> None:
    """A fault that makes no sense wakes nobody."""
    await gpus.read_evidence()
    with pytest.raises(GpuUnknown):
        await gpus.inject("lost", ["99"])
    with anyio.move_on_after(1) as scope:
        await gpus.wait_change()
    assert scope.cancelled_caught


async def test_holders_decide_who_works(gpus: SimulatedGpus) -> None:
    """Who holds a device is told by UUID, and shows in the next samples."""
    uuids = [gpu.uuid for gpu in (await gpus.read_inventory()).gpus]
    gpus.set_holders({uuids[6]: "team/job"})
    await anyio.sleep(60)
    busy = [sample.uuid for sample in (await gpus.read_sample()).gpus if sample.processes]
    assert busy == [uuids[6]]


async def test_system_clock_is_the_default() -> None:
    """Without a clock of its own the simulation takes the machine's."""
    assert len((await SimulatedGpus(T4).read_sample()).gpus) == 1


async def test_a_reset_answers_as_nvidia_smi_does(gpus: SimulatedGpus) -> None:
    """A released agent may reset; a GPU at work, a lost GPU and a hung driver keep GPUs from a reset."""
    tool: DriverTool = gpus
    first, second = (gpu.pci.address for gpu in (await gpus.read_inventory()).gpus[:2])
    gpus.set_holders({(await gpus.read_inventory()).gpus[1].uuid: "pod"})
    await anyio.sleep(60)
    await gpus.inject("xid", ["119", "0"])
    await gpus.release("a repair")
    assert (await tool.reset([first, second], is_bus=False, timeout_seconds=5)).code == 255
    await gpus.inject("hang", ["reset", "60"])
    hung = await tool.reset([first], is_bus=False, timeout_seconds=5)
    assert (hung.code, hung.said) == (None, "no end within 5 s")
    await anyio.sleep(60)
    assert (await tool.reset([first], is_bus=True, timeout_seconds=5)).code == 0
    await gpus.resume()
    assert (await gpus.read_sample()).gpus[0].recovery_action == 0
    await gpus.inject("lost", ["0"])
    assert (await tool.reset([first], is_bus=False, timeout_seconds=5)).code == 15


async def test_the_tool_sets_persistence_mode_and_keeps_the_power_limit(gpus: SimulatedGpus) -> None:
    before = (await gpus.read_inventory()).gpus[0]
    assert (await gpus.set_persistence(before.pci.address, is_on=False)).code == 0
    assert (await gpus.set_power_limit(before.pci.address, 1000)).code == 0
    after = (await gpus.read_inventory()).gpus[0]
    assert (after.persistence_mode, after.power_limit_milliwatts) == (False, before.power_limit_milliwatts)
