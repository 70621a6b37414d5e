"""The condition of pods whose GPU failed: for whom, how soon, how often, and what follows where a write fails."""

import pytest

from nodeagent.components.signals.component import CONDITIONS_UNWRITTEN
from nodeagent.components.signals.series import AT_ONCE, NEW_MAX
from nodeagent.config.schema import Settings
from nodeagent.config.sections.cluster import KubernetesSettings, SignalsSettings
from nodeagent.edge.kube.errors import ApiForbidden, ApiInvalid
from nodeagent.model.cluster import PodConditionCounts
from tests.component.cluster.harness import GONE, settle
from tests.component.signals.test_signals import Stage
from tests.support.gpus import gpu_uuid
from tests.support.virtual_time import FakeClock
from tests.unit.rules.test_signals import GPU, make_pod

pytestmark = pytest.mark.virtual_time
ON = Settings(signals=SignalsSettings(pod_condition=True))


async def test_no_condition_is_written_unless_the_settings_ask(clock: FakeClock) -> None:
    """Off by default, and decided at each fault anew."""
    async with Stage(clock).running() as stage:
        stage.hold((make_pod("a"), GPU))
        stage.break_gpu()
        await settle()
        assert (stage.told(), stage.status.written) == ([("a", 1)], [])
        stage.live.replace(ON)
        stage.break_gpu()
        await settle()
        assert stage.status.written == ["a"]


async def test_the_pods_of_a_gpu_that_failed_have_the_condition_at_once(clock: FakeClock) -> None:
    """With the sentence of the event; a fault of a program, and one that blames nobody, gives none."""
    async with Stage(clock, ON).running() as stage:
        stage.hold((make_pod("a"), f"{GPU}::1"), (make_pod("b"), f"{GPU}::2"), (make_pod("c"), gpu_uuid(1)))
        stage.break_gpu(31)
        stage.break_gpu(999)
        stage.break_gpu(31, gpu=gpu_uuid(1), index=1, devices=(gpu_uuid(1),))
        await settle()
        assert stage.status.written == []
        stage.break_gpu()
        await settle(0.9)
        assert sorted(stage.status.written) == ["a", "b"]
        event = stage.status.series[0].event
        assert (event.reason, event.note[:40]) == ("GPUFault", "[gpu-health] [CRITICAL] Xid 79 (a fault)")
        assert stage.bus.read(PodConditionCounts) == PodConditionCounts(written=2)


async def test_a_condition_is_written_once_however_often_the_gpu_fails(clock: FakeClock) -> None:
    """Whatever the number."""
    async with Stage(clock, ON).running() as stage:
        stage.hold((make_pod("a"), GPU))
        for _ in range(100):
            stage.break_gpu()
            stage.break_gpu(48)
            await settle(1)
        assert stage.status.written == ["a"]


async def test_a_switch_that_fails_is_a_failure_of_the_node(clock: FakeClock) -> None:
    async with Stage(clock, ON).running() as stage:
        stage.hold((make_pod("a"), GPU))
        stage.break_gpu(11, gpu="", index=-1, is_fatal=True)
        await settle()
        assert stage.status.written == ["a"]


async def test_the_condition_needs_no_events(clock: FakeClock) -> None:
    """Each is switched by itself."""
    settings = Settings(signals=SignalsSettings(pod_condition=True), kubernetes=KubernetesSettings(events=False))
    async with Stage(clock, settings).running() as stage:
        stage.hold((make_pod("a"), GPU))
        stage.break_gpu()
        await settle()
        assert (stage.told(), stage.status.written) == ([], ["a"])


async def test_writes_to_many_pods_are_bounded(clock: FakeClock) -> None:
    """64 pods within a second; of more pods than the limit the first have the condition."""
    async with Stage(clock, ON).running() as stage:
        stage.hold(*((make_pod(f"p{number:03}"), f"{GPU}::{number}") for number in range(64)))
        stage.break_gpu()
        await settle(0.9)
        assert len(stage.status.written) == 64
        stage.hold(*((make_pod(f"q{number:03}"), f"{GPU}::{number}") for number in range(NEW_MAX)))
        stage.break_gpu()
        await settle(1)
        assert len(set(stage.status.written)) == NEW_MAX


async def test_a_condition_waits_for_an_api_server_that_is_away(clock: FakeClock) -> None:
    """The agent's own condition says so; few requests are made until then."""
    async with Stage(clock, ON).running() as stage:
        stage.hold(*((make_pod(f"p{number}"), f"{GPU}::{number}") for number in range(2 * AT_ONCE)))
        stage.status.trouble = GONE
        stage.break_gpu()
        await settle(60)
        assert stage.detail(CONDITIONS_UNWRITTEN) == str(GONE)
        stage.status.trouble = None
        await settle(60)
        assert len(stage.status.written) == 2 * AT_ONCE
        assert stage.detail(CONDITIONS_UNWRITTEN) == ""


@pytest.mark.parametrize(
    ("trouble", "written"), [(ApiForbidden("write", 403, "no"), 1), (ApiInvalid("w", 422, "no"), 0)]
)
async def test_a_missing_right_may_come_and_a_policy_s_word_is_final(
    clock: FakeClock, trouble: ApiForbidden | ApiInvalid, written: int
) -> None:
    """Events are written whatever becomes of the condition."""
    async with Stage(clock, ON).running() as stage:
        stage.hold((make_pod("a"), GPU))
        stage.status.trouble = trouble
        stage.break_gpu()
        await settle()
        assert stage.told() == [("a", 1)]
        assert stage.detail(CONDITIONS_UNWRITTEN) == str(trouble)
        stage.status.trouble = None
        await settle(60)
        assert len(stage.status.written) == written


async def test_a_pod_that_is_gone_needs_no_condition(clock: FakeClock, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is wrong with the node for that."""
    async with Stage(clock, ON).running() as stage:
        stage.hold((make_pod("a"), GPU))
        stage.status.gone.add("a")
        stage.break_gpu()
        await settle(60)
        assert (stage.status.written, stage.detail(CONDITIONS_UNWRITTEN)) == ([], "")
        assert "pod_of_condition_gone" in capsys.readouterr().out
