"""Faults between the bus and the API server: who is told, how soon, and what happens where a write fails."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from nodeagent.components.signals.component import UNWRITTEN, FaultSinks, Signals
from nodeagent.components.signals.series import AGAIN_SECONDS, AT_ONCE, KEEP_SECONDS, NEW_MAX
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.cluster import KubernetesSettings, SignalsSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.edge.kube.errors import ApiForbidden, ApiInvalid, ApiNotFound
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.cluster import EventSeries, PodEventCounts
from nodeagent.model.conditions import CATALOGUE
from tests.component.cluster.harness import GONE, settle
from tests.fakes.node_api import FakeNodeApi, FakePodStatus
from tests.support.gpus import gpu_uuid
from tests.support.virtual_time import FakeClock
from tests.unit.rules.test_signals import GPU, make_fault, make_pod, make_table

pytestmark = pytest.mark.virtual_time


class SlowNodeApi(FakeNodeApi):
    """Takes its time for each write, and counts the writes under way."""

    def __init__(self) -> None:
        super().__init__()
        self.write_seconds = 0.0
        self.most = self._now = 0

    async def write_series(self, series: EventSeries) -> None:
        self._now += 1
        self.most = max(self.most, self._now)
        await anyio.sleep(self.write_seconds)
        self._now -= 1
        await super().write_series(series)


class Stage:
    def __init__(self, clock: FakeClock, settings: Settings | None = None) -> None:
        self.clock = clock
        self.bus = Bus(clock)
        self.conditions = Conditions(self.bus, clock, CATALOGUE)
        self.live = LiveSettings(settings or Settings())
        self.api = SlowNodeApi()
        self.status = FakePodStatus()
        self.asked = 0
        self.named: tuple[tuple[PodIdentity | None, str], ...] = ()
        """What the kubelet says of the holders, once it is asked."""

    async def identify(self) -> None:
        self.asked += 1
        await anyio.sleep(3)
        self.hold(*self.named)

    @asynccontextmanager
    async def running(self, *, facts_after: int | None = None) -> AsyncIterator["Stage"]:
        signals = Signals(
            self.bus,
            self.conditions,
            self.clock,
            self.live,
            FaultSinks(self.api, self.status),
            "node-1",
            self.identify,
            facts_after=facts_after,
        )
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: signals.run(task_status=task_status))
            await settle()
            yield self
            tasks.cancel_scope.cancel()

    def hold(self, *held: tuple[PodIdentity | None, str]) -> None:
        self.bus.publish_state(make_table(*held), source="test")

    def break_gpu(self, number: int = 79, **changes: object) -> None:
        self.bus.publish_fact(make_fault(number, **changes), source="test")

    def told(self) -> list[tuple[str, int]]:
        return [(series.pod.name, series.count) for series in self.api.series]

    def counts(self) -> PodEventCounts | None:
        return self.bus.read(PodEventCounts)

    def detail(self, code: str = UNWRITTEN) -> str:
        return "".join(each.detail for each in self.conditions.all_set() if each.code == code)


async def test_the_pod_of_a_gpu_is_told_at_once(clock: FakeClock) -> None:
    """And the pod of another GPU is not; in a quiet hour nothing is written."""
    async with Stage(clock).running() as stage:
        stage.hold((make_pod("a"), GPU), (make_pod("b"), gpu_uuid(1)))
        await settle(3600)
        assert (stage.api.writes, stage.asked) == ([], 0)
        at = clock.wall()
        stage.break_gpu()
        await settle()
        (series,) = stage.api.series
        assert (series.pod, series.count, series.first_seconds) == (make_pod("a"), 1, at)
        assert series.event.note.startswith("[gpu-health] [CRITICAL] Xid 79 (a fault) on GPU 0 GPU-")
        assert series.event.note.endswith(" node=node-1")
        assert stage.counts() == PodEventCounts(written=1)
        await settle(3600)
        assert stage.told() == [("a", 1)]


async def test_faults_of_all_gpus_are_a_write_for_each_pod(clock: FakeClock) -> None:
    """64 pods of 8 GPUs, within a second, some requests at a time."""
    stage = Stage(clock)
    stage.api.write_seconds = 0.1
    async with stage.running():
        stage.hold(*((make_pod(f"p{number}"), f"{gpu_uuid(number % 8)}::{number}") for number in range(64)))
        for index in range(8):
            stage.break_gpu(gpu=gpu_uuid(index), index=index, devices=(gpu_uuid(index),))
        await settle(0.9)
        assert (len(stage.told()), len({name for name, _ in stage.told()}), stage.api.most) == (64, 64, AT_ONCE)


async def test_a_storm_is_a_count(clock: FakeClock) -> None:
    """One event, written again after some seconds."""
    async with Stage(clock).running() as stage:
        stage.hold((make_pod("a"), GPU))
        for _ in range(200):
            stage.break_gpu(31)
            await settle(0.01)
        assert stage.told() == [("a", 1)]
        await settle(AGAIN_SECONDS)
        assert stage.told() == [("a", 1), ("a", 200)]


async def test_a_pod_without_a_name_is_asked_for(clock: FakeClock) -> None:
    """Once for all faults until then; pods with a name do not wait for the kubelet."""
    async with Stage(clock).running() as stage:
        stage.hold((make_pod("a"), f"{GPU}::1"), (None, f"{GPU}::2"))
        stage.named = ((make_pod("a"), f"{GPU}::1"), (make_pod("b"), f"{GPU}::2"))
        stage.break_gpu()
        stage.break_gpu(48)
        await settle(1)
        assert (stage.told(), stage.asked) == ([("a", 1), ("a", 1)], 1)
        await settle(3)
        assert stage.told() == [("a", 1), ("a", 1), ("b", 1), ("b", 1)]
        assert stage.asked == 1


async def test_a_pod_that_nobody_can_name_is_left_untold(clock: FakeClock, capsys: pytest.CaptureFixture[str]) -> None:
    """The log says so."""
    async with Stage(clock).running() as stage:
        stage.hold((None, GPU))
        stage.named = ((make_pod("a", uid=""), GPU),)
        stage.break_gpu()
        await settle(10)
        assert (stage.told(), stage.asked) == ([], 1)
        assert "pod_of_fault_unknown" in capsys.readouterr().out


async def test_a_pod_that_has_just_ended_is_told(clock: FakeClock) -> None:
    """The driver's word may come after the pod's end."""
    async with Stage(clock).running() as stage:
        stage.hold((make_pod("a"), GPU))
        await settle()
        stage.hold()
        await settle(2)
        stage.break_gpu()
        await settle()
        assert stage.told() == [("a", 1)]


@pytest.mark.parametrize(
    "settings",
    [
        Settings(signals=SignalsSettings(pod_events=False)),
        Settings(kubernetes=KubernetesSettings(events=False)),
    ],
)
async def test_nobody_is_told_where_the_settings_say_so(clock: FakeClock, settings: Settings) -> None:
    """Either setting, at each fault anew."""
    async with Stage(clock, settings).running() as stage:
        stage.hold((make_pod("a"), GPU))
        stage.break_gpu()
        await settle()
        assert stage.api.series == []
        stage.live.replace(Settings())
        stage.break_gpu()
        await settle()
        assert stage.told() == [("a", 1)]


async def test_a_fault_before_the_component_s_start_is_told_where_that_is_asked(clock: FakeClock) -> None:
    """The component is loaded late; after a crash of its own it begins with the next fault."""
    stage = Stage(clock)
    stage.hold((make_pod("a"), GPU))
    stage.break_gpu()
    async with stage.running():
        assert stage.told() == []
    async with stage.running(facts_after=0):
        assert stage.told() == [("a", 1)]


async def test_events_wait_for_an_api_server_that_is_away(clock: FakeClock) -> None:
    """A condition says so; on its return they are written with the time of the fault, few requests until then."""
    async with Stage(clock).running() as stage:
        stage.hold(*((make_pod(f"p{number:02}"), f"{GPU}::{number}") for number in range(40)))
        stage.api.write_trouble = GONE
        at = clock.wall()
        stage.break_gpu()
        await settle(100)
        assert stage.detail() == str(GONE)
        counts = stage.counts()
        assert counts is not None
        assert (counts.written, counts.waiting) == (0, 40)
        assert counts.failed <= 9 * AT_ONCE
        stage.api.write_trouble = None
        await settle(60)
        assert len(stage.told()) == 40
        assert {series.first_seconds for series in stage.api.series} == {at}
        assert stage.detail() == ""


async def test_events_are_given_up_when_they_are_too_old(clock: FakeClock) -> None:
    """They are counted, and the condition goes."""
    async with Stage(clock).running() as stage:
        stage.hold((make_pod("a"), GPU))
        stage.api.write_trouble = GONE
        stage.break_gpu()
        await settle(2 * KEEP_SECONDS)
        stage.api.write_trouble = None
        await settle(60)
        assert stage.told() == []
        counts = stage.counts()
        assert counts is not None
        assert (counts.dropped, counts.waiting, stage.detail()) == (1, 0, "")


async def test_a_refused_pod_holds_up_no_other(clock: FakeClock) -> None:
    """A right that is missing may come; a namespace that is gone, or a policy's word, is final."""
    async with Stage(clock).running() as stage:
        stage.api.pod_troubles = {
            "right": ApiForbidden("write", 403, "no"),
            "policy": ApiInvalid("write", 422, "denied"),
            "gone": ApiNotFound("write", 404, "no namespace"),
        }
        names = ("right", "policy", "gone", "fine")
        stage.hold(*((make_pod(name), f"{GPU}::{number}") for number, name in enumerate(names)))
        stage.break_gpu()
        await settle()
        assert stage.told() == [("fine", 1)]
        stage.api.pod_troubles = {}
        await settle(10)
        assert stage.told() == [("fine", 1), ("right", 1)]
        assert stage.counts() == PodEventCounts(written=2, failed=3, dropped=2)


async def test_more_pods_than_the_limit_are_dropped(clock: FakeClock) -> None:
    """And counted."""
    async with Stage(clock).running() as stage:
        stage.hold(*((make_pod(f"p{number}"), f"{GPU}::{number}") for number in range(NEW_MAX + 3)))
        stage.break_gpu()
        await settle(1)
        assert stage.counts() == PodEventCounts(written=NEW_MAX, dropped=3)
