"""The brake: which starts are lost, when a GPU is closed, for how long, and what opens it."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodeagent.config.sections.cluster import SignalsSettings
from nodeagent.model.allocation import Allocation, AllocationTable
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.cordons import Cordon, CordonSource
from nodeagent.model.events import GpuFaultReported
from nodeagent.model.ids import DeviceId, DeviceUuid, GpuUuid, ResourceName
from nodeagent.model.journal import FractionTable, PreparedClaim, PreparedDevice
from nodeagent.rules.brake import (
    PAUSE_LIMIT_SECONDS,
    REFUSED_SECONDS,
    WINDOW_SECONDS,
    BrakeCount,
    Start,
    find_pause,
    follow_starts,
    forget_gpus,
    list_in_force,
    list_starts,
    list_trials,
    note_fault,
    note_refusal,
    plan_brake,
)
from nodeagent.rules.signals import ENDED_SECONDS
from tests.support.gpus import gpu_uuid, make_node
from tests.support.journals import make_binding, make_part
from tests.unit.rules.test_signals import make_fault

NODE = make_node(4)
SETTINGS = SignalsSettings()
WITHIN = SETTINGS.brake_within_seconds
GPU, OTHER = gpu_uuid(0), gpu_uuid(1)


class Story:
    """Starts, ends and faults by the clock, and the brake's answers."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now, self.count = now, BrakeCount()
        self.cordons: tuple[Cordon, ...] = ()
        self.present = dict[str, Start]()
        self.closed: list[Cordon] = []
        self.opened: list[GpuUuid] = []
        self.wait: float | None = None
        self.proven = dict[GpuUuid, float]()

    def start(self, name: str, *gpus: GpuUuid) -> None:
        on = frozenset(gpus or (GPU,))
        self.present[name] = Start(gpus=on, devices=on, since_seconds=self.now)
        self.look()

    def end(self, name: str) -> None:
        del self.present[name]
        self.look()

    def fault(self, number: int = 94, *devices: DeviceUuid) -> None:
        self.report(make_fault(number, devices=devices or (GPU,)))

    def report(self, fault: GpuFaultReported) -> None:
        self.count = note_fault(self.count, fault, WITHIN, self.now)
        self.look()

    def refuse(self, *gpus: GpuUuid) -> None:
        self.count = note_refusal(self.count, gpus or (GPU,), "no space left on device", self.now)
        self.look()

    def wait_for(self, seconds: float) -> None:
        self.now += seconds
        self.look()

    def look(self) -> None:
        self.count = follow_starts(self.count, self.present, WITHIN, self.now)
        plan = plan_brake(self.count, self.cordons, NODE, SETTINGS, self.now, self.proven)
        self.count, self.cordons, self.wait = plan.count, plan.cordons, plan.wait_seconds
        self.closed += plan.closed
        self.opened += plan.opened

    def lose(self, name: str, number: int = 94) -> None:
        """A pod that dies at once with a fault of its GPU."""
        self.start(name)
        self.now += 1
        self.fault(number)
        self.now += 1
        self.end(name)

    def in_force(self) -> list[GpuUuid]:
        return [each.gpu for each in list_in_force(self.count, self.cordons, self.now)]

    def trials(self) -> list[GpuUuid]:
        return [each.gpu for each in list_trials(self.count, self.cordons, self.now)]


def braked() -> Story:
    """A GPU that has just been closed."""
    story = Story()
    for number in range(SETTINGS.brake_losses):
        story.lose(f"p{number}")
    assert story.in_force() == [GPU]
    return story


def half_open() -> Story:
    story = braked()
    story.wait_for(SETTINGS.brake_pause_seconds)
    assert (story.in_force(), story.trials()) == ([], [GPU])
    return story


def test_the_third_lost_start_closes_the_gpu() -> None:
    """Not the second, and no other GPU; the reason names number, time and fault."""
    story = Story()
    story.lose("a")
    story.lose("b", 79)
    assert story.in_force() == []
    story.lose("c")
    assert story.in_force() == [GPU]
    (cordon,) = story.cordons
    assert cordon == Cordon(
        gpu=GPU,
        source=CordonSource.BRAKE,
        named=GPU,
        reason="3 starts ended within 60 s, beside XID 94, XID 79 of the GPU",
        since_seconds=story.now,
        until_seconds=story.now + SETTINGS.brake_pause_seconds,
        closings=1,
    )
    assert story.wait == SETTINGS.brake_pause_seconds


def test_a_fault_that_the_driver_reports_late_counts() -> None:
    """For as long as a driver may be late, and no longer."""
    for late, closed in ((ENDED_SECONDS - 1, [GPU]), (ENDED_SECONDS, [])):
        story = Story()
        for number in range(3):
            story.start(f"p{number}")
            story.end(f"p{number}")
            story.now += late
            story.fault()
        assert story.in_force() == closed


@pytest.mark.parametrize("number", [13, 31, 43, 45, 69])
def test_a_fault_of_a_program_counts_for_nothing(number: int) -> None:
    """Nor one that blames nobody."""
    story = Story()
    for name in range(10):
        story.lose(f"p{name}", number)
    assert story.cordons == ()


def test_an_end_without_a_fault_counts_for_nothing() -> None:
    """Nor one that comes late after the start, nor a fault of another GPU, nor a fault that the pod survives."""
    story = Story()
    for number in range(10):
        story.start(f"quick {number}")
        story.fault(94, OTHER)
        story.end(f"quick {number}")
        story.wait_for(ENDED_SECONDS)
        story.start(f"slow {number}")
        story.fault()
        story.wait_for(WITHIN + 1)
        story.end(f"slow {number}")
    assert story.cordons == ()


def test_pods_that_share_a_gpu_and_a_fault_are_one_loss() -> None:
    story = Story()
    for number in range(10):
        story.start(f"p{number}")
    story.fault()
    story.fault()
    for number in range(10):
        story.end(f"p{number}")
    assert story.cordons == ()


def test_a_start_that_lasts_forgets_the_losses_before_it() -> None:
    """A neighbour that started before the losses proves nothing about them."""
    story = Story()
    story.start("neighbour")
    story.wait_for(WITHIN + 1)
    story.lose("a")
    story.lose("b")
    story.start("c")
    story.wait_for(WITHIN + 1)
    story.lose("d")
    assert story.cordons == ()
    story.lose("e")
    story.lose("f")
    assert story.in_force() == [GPU]


def test_old_losses_count_no_more() -> None:
    story = Story()
    story.lose("a")
    story.lose("b")
    story.wait_for(WINDOW_SECONDS)
    story.lose("c")
    assert story.cordons == ()


def test_a_fault_of_a_switch_counts_where_the_driver_calls_it_fatal() -> None:
    for is_fatal, gpus in ((True, [GPU, OTHER]), (False, [])):
        story = Story()
        for number in range(3):
            story.start(f"p{number}", GPU, OTHER)
            story.report(make_fault(12028, gpu=GpuUuid(""), devices=(GPU, OTHER), is_fatal=is_fatal))
            story.now += 1
            story.end(f"p{number}")
        assert sorted(story.in_force()) == gpus
        assert ("SXid 12028" in str(story.cordons)) is is_fatal


def test_refused_requests_close_the_gpu() -> None:
    """Five within a minute; those of other GPUs and of earlier minutes do not count."""
    story = Story()
    for _ in range(4):
        story.refuse()
        story.refuse(OTHER)
        story.wait_for(REFUSED_SECONDS / 4)
    story.refuse()
    assert story.in_force() == []
    story.refuse()
    (cordon,) = story.cordons
    assert cordon.reason == "5 requests for the GPU were refused within a minute: no space left on device"


def test_gpus_that_are_closed_together_are_tried_one_after_another() -> None:
    """With the time of a proof in between."""
    story = Story()
    for _ in range(5):
        story.refuse(*(gpu.uuid for gpu in NODE.gpus))
    first = story.now + SETTINGS.brake_pause_seconds
    assert [each.until_seconds for each in story.cordons] == [first + WITHIN * number for number in range(4)]
    story.wait_for(SETTINGS.brake_pause_seconds)
    assert (len(story.in_force()), story.trials()) == (3, [GPU])


def test_a_trial_that_lasts_opens_the_gpu() -> None:
    """For others the GPU is closed as long as one pod tries it."""
    story = half_open()
    story.start("trial")
    assert (story.in_force(), story.trials()) == ([GPU], [])
    assert story.wait == WITHIN + 1
    story.wait_for(WITHIN)
    assert story.in_force() == [GPU]
    story.wait_for(1)
    assert (story.cordons, story.opened) == ((), [GPU])
    story.lose("a")
    story.lose("b")
    assert story.cordons == ()


def test_a_trial_that_ends_well_opens_the_gpu() -> None:
    """Once the driver can no longer report a fault of it."""
    story = half_open()
    story.start("trial")
    story.end("trial")
    assert (story.in_force(), story.wait) == ([GPU], ENDED_SECONDS)
    story.wait_for(ENDED_SECONDS)
    assert story.cordons == ()


@pytest.mark.parametrize("is_late", [False, True])
def test_a_trial_with_a_fault_closes_the_gpu_for_longer(is_late: bool) -> None:
    """One loss is enough."""
    story = half_open()
    story.start("trial")
    if not is_late:
        story.fault()
    story.end("trial")
    if is_late:
        story.now += ENDED_SECONDS - 1
        story.fault()
    (cordon,) = story.cordons
    assert cordon.closings == 2
    assert cordon.until_seconds == story.now + 2 * SETTINGS.brake_pause_seconds
    assert cordon.reason == "a start ended within 60 s, beside XID 94 of the GPU"
    assert story.in_force() == [GPU]


def test_a_trial_that_is_refused_closes_the_gpu_for_longer() -> None:
    story = half_open()
    story.refuse()
    (cordon,) = story.cordons
    assert (cordon.closings, cordon.reason) == (2, "a request for the GPU was refused: no space left on device")


def test_holders_from_before_the_closing_decide_nothing() -> None:
    """Neither by lasting nor by dying, whether the GPU is closed or to be tried."""
    story = Story()
    for number in range(20):
        story.start(f"old {number}")
    for number in range(3):
        story.lose(f"p{number}")
    assert story.in_force() == [GPU]
    story.fault()
    for number in range(10):
        story.end(f"old {number}")
        story.now += 1
    story.wait_for(SETTINGS.brake_pause_seconds)
    story.fault()
    story.end("old 10")
    assert story.trials() == [GPU]
    assert story.cordons[0].closings == 1


def test_a_persons_word_settles_what_was_counted() -> None:
    story = braked()
    story.cordons = ()
    story.count = forget_gpus(story.count, [GPU])
    story.look()
    story.lose("a")
    story.lose("b")
    assert story.cordons == ()


def test_pauses_grow_to_a_limit() -> None:
    pauses = [find_pause(300, closings) for closings in (1, 2, 3, 7, 8, 1000)]
    assert pauses == [300, 600, 1200, 19200, PAUSE_LIMIT_SECONDS, PAUSE_LIMIT_SECONDS]
    assert find_pause(86400, 2) == 86400


def test_a_gpu_that_is_gone_stays_closed() -> None:
    """It comes back as it went."""
    story = braked()
    plan = plan_brake(story.count, story.cordons, replace(NODE, gpus=NODE.gpus[1:]), SETTINGS, story.now)
    assert plan.cordons == story.cordons


def test_an_end_by_a_clock_that_was_set_back_is_no_quick_end() -> None:
    story = Story()
    for number in range(5):
        story.start(f"p{number}")
        story.now -= WITHIN
        story.fault()
        story.end(f"p{number}")
    assert story.cordons == ()


def test_starts_are_of_all_ways_of_giving_out() -> None:
    """Whole GPUs, replicas, fractions and claims; not those of other vendors, nor monitoring."""
    rows = ((1, f"{GPU}::2"), (2, "vendor/card-1"))
    table = AllocationTable(
        allocations=tuple(
            Allocation(number=number, resource=ResourceName("r"), devices=(DeviceId(device),), since_seconds=5.0)
            for number, device in rows
        )
    )
    binding = replace(make_binding(7, (4,), make_part("a")), since_seconds=6.0)
    binding = replace(binding, parts=tuple(replace(part, gpu=OTHER) for part in binding.parts))

    def claim(**fields: Any) -> PreparedClaim:
        device = PreparedDevice(requests=(), pool="", device="gpu-2", **fields)
        return PreparedClaim(uid=str(fields), namespace="ns", name="c", devices=(device,), since_seconds=7.0)

    one, made = claim(uuid=gpu_uuid(2)), claim(uuid=GpuUuid(""), gpu=gpu_uuid(3))
    watching = claim(uuid=gpu_uuid(2), is_admin=True)
    claims = ReadyClaims(claims={each.uid: each for each in (one, made, watching)})
    starts = list_starts(NODE, table, FractionTable(bindings={7: binding}), claims)
    assert {name: (set(each.gpus), each.since_seconds) for name, each in starts.items()} == {
        "allocation 1": ({GPU}, 5.0),
        "fraction 7": ({OTHER}, 6.0),
        f"claim {one.uid}": ({gpu_uuid(2)}, 7.0),
        f"claim {made.uid}": ({gpu_uuid(3)}, 7.0),
    }
    assert list_starts(NODE, None, None, None) == {}


def test_a_proof_ends_the_first_pause_and_no_later_one() -> None:
    """A pod has the last word; a proof from before the closing says nothing of what came after."""
    story = Story()
    for name in "abc":
        story.lose(name)
    (first,) = story.cordons
    story.proven = {GPU: first.since_seconds or 0.0}
    story.wait_for(10)
    assert list_trials(story.count, story.cordons, story.now) == ()
    story.proven = {GPU: story.now}
    story.wait_for(5)
    (tried,) = list_trials(story.count, story.cordons, story.now)
    assert (tried.until_seconds, story.opened) == (story.now, [])
    story.lose("d")
    (second,) = story.cordons
    assert (second.closings, second.until_seconds) == (2, story.now + find_pause(SETTINGS.brake_pause_seconds, 2))
    story.proven = {GPU: story.now + 1}
    story.wait_for(10)
    assert story.cordons == (second,)
