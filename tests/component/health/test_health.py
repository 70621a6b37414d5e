"""The health component on a simulated node: from what the hardware reports to what the kubelet would be told."""

from pathlib import Path

import anyio
import pytest

from nodeagent.components.health.component import REWRITE_SECONDS, Health
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.errors import ControlRefused
from nodeagent.model.events import GpuCleared, GpuEventReported, VerdictChanged, XidReported
from nodeagent.model.events.hardware import GPU_RESET
from nodeagent.model.health import HealthReport, Verdict
from nodeagent.model.ids import GpuUuid
from nodeagent.model.proof import PROOF_FAILED
from tests.component.health.health_node import HEALTHY, SUSPECT, UNHEALTHY, UNKNOWN, Node, WatchedStore
from tests.support.gpus import make_gpu, make_inventory

pytestmark = pytest.mark.virtual_time


async def test_devices_are_unknown_until_the_first_look(tmp_path: Path) -> None:
    """The first report comes before any sample and calls nothing healthy."""
    node = Node(tmp_path)
    with node.bus.tap(client="test") as tap:
        async with node.running():
            first = None
            async for envelope in tap:
                if isinstance(envelope.value, HealthReport):
                    first = envelope.value
                    break
            assert first is not None
            assert {device.verdict for device in first.devices} == {UNKNOWN}
            assert await node.wait_verdict(7, HEALTHY) <= 1


@pytest.mark.long
@pytest.mark.parametrize(
    "profile",
    [
        "dgx-h100",
        "a100-80gb-mig",
        *(
            pytest.param(name, marks=pytest.mark.nightly)
            for name in ("dgx-b200", "gb200-nvl72-node", "t4", "mixed", "rtx-pro-6000")
        ),
    ],
)
async def test_sound_hardware_is_healthy_for_hours(tmp_path: Path, profile: str) -> None:
    """Corrected errors, power caps, partitions and idle links of everyday life are no faults."""
    async with Node(tmp_path, profile, sample_seconds=5).running() as node:
        await anyio.sleep(3600)
        assert set(node.verdicts) == {HEALTHY}
        assert not [one.code for one in node.conditions.all_set()]


async def test_xid_is_told_at_once_and_written_first(tmp_path: Path) -> None:
    """Within a tenth of a second; the verdict is on the disk before anyone hears it."""
    async with Node(tmp_path).running() as node:
        await node.wait_verdict(3, HEALTHY)
        await node.break_it("xid", "79", "3")
        assert await node.wait_verdict(3, UNHEALTHY) < 0.1
        assert [verdict for index, verdict in enumerate(node.verdicts) if index != 3] == [HEALTHY] * 7
        _body, told = next(write for write in node.store.writes if b'"xid-79"' in write[0])
        assert told is not None
        assert told.devices[3].verdict is HEALTHY


async def test_one_chain_leads_from_the_xid_to_the_verdict(tmp_path: Path) -> None:
    """Report and fact carry the event that led to them."""
    async with Node(tmp_path).running() as node:
        await node.wait_verdict(2, HEALTHY)
        await node.break_it("xid", "48", "2")
        await node.wait_verdict(2, UNHEALTHY)
        xid = node.told(XidReported)[0]
        change = next(one for one in node.told(VerdictChanged) if one.value.after is UNHEALTHY)
        report = node.told(HealthReport)[-1]
        assert (xid.value.xid, report.value.devices[2].xid) == (48, 48)
        assert (change.cause, report.cause) == (xid.seq, xid.seq)
        assert (change.value.device, change.value.before) == (node.device(2).device, HEALTHY)


async def test_gpu_returns_after_a_reset(tmp_path: Path) -> None:
    """Not before it, and not without clean looks after it."""
    async with Node(tmp_path).running() as node:
        await node.wait_verdict(1, HEALTHY)
        await node.break_it("xid", "48", "1")
        await anyio.sleep(300)
        assert node.device(1).verdict is UNHEALTHY
        assert "GPU 1: XID 48" in node.details("gpu-unhealthy")[0]
        await node.break_it("reset", "1")
        took = await node.wait_verdict(1, HEALTHY)
        assert 5 <= took <= 15
        assert node.details("gpu-unhealthy") == []


@pytest.mark.parametrize(
    ("breaks", "mends", "verdict"),
    [
        (("lost", "0"), ("back", "0"), UNHEALTHY),
        (("xid", "79", "0"), ("back", "0"), UNHEALTHY),
        (("xid", "119", "0"), ("reset", "0"), UNHEALTHY),
        (("xid", "74", "0"), ("reset", "0"), UNHEALTHY),
        (("ecc", "0", "uncorrected"), ("reset", "0"), UNHEALTHY),
        (("row-remap", "0", "pending"), ("reset", "0"), SUSPECT),
        (("thermal", "0", "on"), ("thermal", "0", "off"), SUSPECT),
        (("nvlink", "0", "down", "3"), ("nvlink", "0", "up", "3"), SUSPECT),
        (("nvlink", "0", "down"), ("nvlink", "0", "up"), UNHEALTHY),
        (("unplug", "0"), ("plug", "0"), HEALTHY),
    ],
)
@pytest.mark.long
async def test_what_breaks_is_seen_and_what_is_mended_returns(
    tmp_path: Path, breaks: tuple[str, ...], mends: tuple[str, ...], verdict: Verdict
) -> None:
    """Every fault of the simulation, by event or by level, and the way back from it."""
    async with Node(tmp_path, sample_seconds=5).running() as node:
        await node.wait_verdict(0, HEALTHY)
        await node.break_it(*breaks)
        if breaks[0] != "unplug":
            await node.wait_verdict(0, verdict, within_seconds=11)
        await anyio.sleep(20)
        await node.break_it(*mends)
        await node.wait_verdict(0, HEALTHY, within_seconds=7200)  # the quiet period of link errors is an hour


async def test_failed_remap_waits_for_a_person(tmp_path: Path) -> None:
    """A reset does not bring the board back; the clearing is told, dated and written."""
    async with Node(tmp_path).running() as node:
        await node.wait_verdict(4, HEALTHY)
        await node.break_it("row-remap", "4", "failed")
        await node.wait_verdict(4, UNHEALTHY)
        await node.break_it("reset", "4")
        await anyio.sleep(600)
        assert node.device(4).verdict is UNHEALTHY
        done = await node.clear("4", "board tested", "ada (uid 0, pid 1)")
        assert "remap-failed" in done
        assert node.device(4).verdict is HEALTHY
        await anyio.sleep(60)
        assert node.device(4).verdict is HEALTHY
        assert b"board tested" in node.store.writes[-1][0]
        (fact,) = node.told(GpuCleared)
        assert (fact.value.who, fact.value.cleared) == ("ada (uid 0, pid 1)", ("remap-failed",))


async def test_clearing_is_refused_with_a_reason(tmp_path: Path) -> None:
    """An unknown GPU, a GPU with no faults, an agent that does not judge."""
    node = Node(tmp_path)
    with pytest.raises(ControlRefused, match="not judged yet"):
        await node.clear("0", "why", "ada")
    async with node.running():
        with pytest.raises(ControlRefused, match="no GPU 9"):
            await node.clear("9", "why", "ada")
        with pytest.raises(ControlRefused, match="nothing is held against GPU 0"):
            await node.clear("0", "why", "ada")
    with pytest.raises(ControlRefused, match="not judged yet"):
        await node.clear("0", "why", "ada")


async def test_event_marks_the_mig_instance_it_names(tmp_path: Path) -> None:
    """One instance of many; an event that names none marks the GPU and all its devices."""
    async with Node(tmp_path, "a100-80gb-mig").running() as node:
        await anyio.sleep(2)
        gpu = node.gpus.profile.seats[0].index
        readout = await node.gpus.read_inventory()
        mig = readout.gpus[gpu].mig_devices[-1]
        instances = (str(mig.gpu_instance_id), str(mig.compute_instance_id))
        await node.break_it("xid", "94", str(gpu), *instances)
        await node.wait_report(
            lambda report: any(one.device == mig.uuid and one.verdict is not HEALTHY for one in report.devices)
        )
        others = {device.uuid for device in readout.gpus[gpu].mig_devices} - {mig.uuid}
        hit = {device.device for device in node.report.devices if device.xid == 94}
        assert not hit & others
        await node.break_it("xid", "95", str(gpu))
        await node.wait_report(
            lambda report: {one.verdict for one in report.devices if one.gpu == readout.gpus[gpu].uuid} == {UNHEALTHY}
        )


async def test_lost_driver_takes_all_devices_and_gives_them_back(tmp_path: Path) -> None:
    """One condition for the driver, none for eight GPUs."""
    async with Node(tmp_path).running() as node:
        await node.wait_verdict(0, HEALTHY)
        await node.break_it("driver", "gone")
        await node.wait_verdict(0, UNHEALTHY, within_seconds=1)
        assert set(node.verdicts) == {UNHEALTHY}
        await anyio.sleep(60)
        assert node.details("gpu-unhealthy") == []
        await node.break_it("driver", "back")
        assert await node.wait_verdict(7, HEALTHY) <= 15
        assert set(node.verdicts) == {HEALTHY}


async def test_old_sample_proves_nothing(tmp_path: Path) -> None:
    """A part that starts anew finds the newest sample on the bus, which may be from before the driver hung."""
    async with Node(tmp_path).running() as node:
        await node.wait_verdict(0, HEALTHY)
        await node.break_it("hang", "sample")
        await anyio.sleep(120)
        again = Health(
            node.bus,
            node.conditions,
            node.clock,
            node.live,
            WatchedStore(tmp_path / "other.json", node.bus),
            OrderHandlers(),
        )
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: again.run(task_status=task_status))
            await anyio.sleep(2)
            assert set(node.verdicts) == {UNKNOWN}
            tasks.cancel_scope.cancel()


async def test_hung_driver_turns_devices_unknown_and_back(tmp_path: Path) -> None:
    """No answer for three looks is no health; a good look ends it."""
    async with Node(tmp_path).running() as node:
        await node.wait_verdict(0, HEALTHY)
        await node.break_it("hang", "sample")
        took = await node.wait_verdict(0, UNKNOWN)
        assert 10 <= took <= 30
        assert node.report.watched is False
        assert len(node.details("gpu-health-unknown")) == 8
        assert "no readings for" in node.details("health-unwatched")[0]
        await node.break_it("clear")
        assert await node.wait_verdict(0, HEALTHY) <= 10
        assert (node.details("gpu-health-unknown"), node.details("health-unwatched")) == ([], [])
        assert node.report.watched


@pytest.mark.long
async def test_released_driver_leaves_devices_as_they_were(tmp_path: Path) -> None:
    """An upgrade of an hour changes no verdict, good or bad."""
    async with Node(tmp_path, sample_seconds=5).running() as node:
        await node.wait_verdict(0, HEALTHY)
        await node.break_it("xid", "119", "5")
        await node.wait_verdict(5, UNHEALTHY)
        await node.gpus.release("upgrade")
        await anyio.sleep(3600)
        assert node.verdicts == [UNHEALTHY if index == 5 else HEALTHY for index in range(8)]
        await node.gpus.resume()
        await anyio.sleep(60)
        assert node.verdicts == [UNHEALTHY if index == 5 else HEALTHY for index in range(8)]


async def test_verdict_outlives_the_agent(tmp_path: Path) -> None:
    """The next agent's first word is the stored one, and sound GPUs are trusted after a quick restart."""
    async with Node(tmp_path).running() as node:
        await node.wait_verdict(0, HEALTHY)
        await node.break_it("row-remap", "6", "failed")
        await node.wait_verdict(6, UNHEALTHY)
        await anyio.sleep(REWRITE_SECONDS + 10)
        since = node.device(6).since_seconds
    after = Node(tmp_path)
    after.clock.advance(anyio.current_time() + 5 - after.clock.monotonic())
    with after.bus.watch(HealthReport, client="test") as reports:
        async with after.running():
            first = (await anext(aiter(reports))).value
    assert [device.verdict for device in first.devices] == [UNHEALTHY if index == 6 else HEALTHY for index in range(8)]
    assert first.devices[6].since_seconds == since


async def test_damaged_file_is_moved_aside_and_nothing_is_trusted(tmp_path: Path) -> None:
    """Devices start unknown, and a condition says what may be forgotten."""
    (tmp_path / "verdicts.json").write_bytes(b"nodeagent-verdicts 1 3 beef\nabc")
    async with Node(tmp_path).running() as node:
        assert "verdicts.json.aside.1" in node.details("health-history-lost")[0]
        await node.wait_verdict(0, HEALTHY)


async def test_whole_file_without_a_book_is_discarded(tmp_path: Path) -> None:
    """A seal protects bytes, not their meaning."""
    node = Node(tmp_path)
    assert await node.store.write(b'{"boot_id": 7}') == ""
    async with node.running():
        assert "boot_id" in node.details("health-history-lost")[0]
        await node.wait_verdict(0, HEALTHY)


async def test_disk_that_fails_stops_no_verdict(tmp_path: Path) -> None:
    """Verdicts go on from memory, a condition says so, and it heals by itself."""
    async with Node(tmp_path).running() as node:
        await node.wait_verdict(0, HEALTHY)
        node.store.broken = "no space left"
        await node.break_it("xid", "48", "0")
        assert await node.wait_verdict(0, UNHEALTHY) < 0.1
        assert node.details("health-not-durable") == ["no space left"]
        done = await node.clear("0", "why", "ada")
        assert "could not be written down" in done
        node.store.broken = ""
        await anyio.sleep(6)
        assert node.details("health-not-durable") == []


async def test_health_waits_for_a_node_that_nobody_knows(tmp_path: Path) -> None:
    """Nothing is said of devices before somebody has said which there are, nor by a driver's word alone."""
    node = Node(tmp_path)
    health = Health(node.bus, node.conditions, node.clock, node.live, node.store, node.orders)
    async with anyio.create_task_group() as tasks:
        await tasks.start(lambda *, task_status: health.run(task_status=task_status))
        assert node.report.devices == ()
        node.bus.publish_state(DriverState(phase=DriverPhase.STUCK), source="test")
        await anyio.sleep(1)
        assert node.report.devices == ()
        tasks.cancel_scope.cancel()


async def test_devices_may_be_known_before_the_driver_is_judged(tmp_path: Path) -> None:
    """Each of the two states counts as soon as it is there."""
    node = Node(tmp_path)
    node.bus.publish_state(make_inventory([make_gpu(0)]), source="test")
    health = Health(node.bus, node.conditions, node.clock, node.live, node.store, node.orders)
    async with anyio.create_task_group() as tasks:
        await tasks.start(lambda *, task_status: health.run(task_status=task_status))
        assert [device.verdict for device in node.report.devices] == [UNKNOWN]
        tasks.cancel_scope.cancel()


async def test_a_failed_proof_outlives_a_driver_that_asks_for_no_recovery(tmp_path: Path) -> None:
    """The driver knows nothing of the proof; a reset ends it."""
    async with Node(tmp_path).running() as node:
        await node.wait_verdict(0, HEALTHY)
        gpu = node.device(0).gpu
        node.bus.publish_fact(GpuEventReported(gpu=gpu, kind=PROOF_FAILED), source="test")
        await node.wait_verdict(0, UNHEALTHY)
        await anyio.sleep(300)
        assert node.device(0).verdict is UNHEALTHY
        node.bus.publish_fact(GpuEventReported(gpu=gpu, kind=GPU_RESET), source="test")
        await node.wait_verdict(0, HEALTHY)


async def test_a_reset_by_the_agent_lets_a_gpu_return(tmp_path: Path) -> None:
    """An old driver does not say that a reset is no longer needed; the report of a GPU that is gone is ignored."""
    async with Node(tmp_path, "t4").running() as node:
        await node.wait_verdict(0, HEALTHY)
        node.bus.publish_fact(XidReported(gpu=node.device(0).gpu, xid=119), source="test")
        await node.wait_verdict(0, UNHEALTHY)
        await node.break_it("reset", "0")
        for uuid in ("GPU-gone", node.device(0).gpu):
            node.bus.publish_fact(GpuEventReported(gpu=GpuUuid(uuid), kind=GPU_RESET), source="test")
        await node.wait_verdict(0, HEALTHY)
