"""What the label of a MIG configuration asks for, and whether it is there."""

import pytest
from msgspec.structs import replace

from nodeagent.components.node_requests.decide import (
    Pause,
    RequestStanding,
    Step,
    decide_step,
    find_differing,
    judge_mig_request,
)
from nodeagent.model.cluster import NodeRequests
from nodeagent.model.gpu import Gpu, Mig, MigProfile
from tests.support.gpus import make_gpu, make_mig_devices

SMALL, MEDIA_PROFILE = (
    MigProfile(name=name, profile_id=number, slice_count=1, memory_mib=1, multiprocessor_count=1, instances_max=most)
    for name, number, most in (("1g.10gb", 19, 7), ("1g.10gb+me", 20, 1))
)


def make(index: int, *profiles: str, enabled: bool = True) -> Gpu:
    devices = make_mig_devices(index, profiles)
    mig = Mig(enabled=enabled, pending=enabled, devices=devices, profiles=(SMALL, MEDIA_PROFILE))
    return replace(make_gpu(index), mig=mig)


OFF, FULL = make(0, enabled=False), make(1, *["1g.10gb"] * 7)
MEDIA = make(2, "1g.10gb+me")
BALANCED = make(3, "1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb")
FOREIGN = make_gpu(4)


@pytest.mark.parametrize(
    ("config", "gpus", "differing"),
    [
        ("all-disabled", (OFF, FOREIGN), ()),
        ("all-disabled", (OFF, FULL), (FULL,)),
        ("all-enabled", (OFF, FULL), (OFF,)),
        ("all-balanced", (BALANCED, FULL, OFF), (FULL, OFF)),
        ("all-1g.10gb", (FULL, FOREIGN), ()),
        ("all-1g.10gb", (FULL, OFF, make(5, "1g.10gb")), (OFF, make(5, "1g.10gb"))),
        ("all-1g.10gb.me", (MEDIA, FULL), (FULL,)),
        ("all-9g.99gb", (FULL,), None),
        ("inference", (FULL,), None),
        ("all-disabled", (replace(FULL, lost="off the bus"),), ()),
    ],
)
def test_well_known_names_say_how_every_gpu_is_cut(
    config: str, gpus: tuple[Gpu, ...], differing: tuple[Gpu, ...] | None
) -> None:
    """GPUs without MIG are never meant; names whose meaning lies with a manager cannot be judged."""
    assert find_differing(config, gpus) == differing


@pytest.mark.parametrize(
    ("config", "state", "standing"),
    [
        ("", "failed", RequestStanding.NONE),
        ("all-disabled", "", RequestStanding.MET),
        ("all-1g.10gb", "", RequestStanding.UNMET),
        ("all-1g.10gb", "success", RequestStanding.UNMET),
        ("all-1g.10gb", "pending", RequestStanding.CHANGING),
        ("all-1g.10gb", "rebooting", RequestStanding.CHANGING),
        ("all-1g.10gb", "failed", RequestStanding.FAILED),
        ("inference", "", RequestStanding.UNKNOWN),
        ("inference", "success", RequestStanding.MET),
    ],
)
def test_a_wish_stands_as_the_manager_and_the_gpus_say(config: str, state: str, standing: RequestStanding) -> None:
    """The manager's word on the work, the GPUs' on the result; what is not met names the GPU and who has to act."""
    request = judge_mig_request(NodeRequests(mig_config=config, mig_state=state), [OFF])
    assert request.standing is standing
    if standing is RequestStanding.UNMET:
        assert "GPU 0" in request.detail
        assert "although" in request.detail if state else "although" not in request.detail


def test_a_wish_that_is_not_met_is_a_condition_until_it_is() -> None:
    """One code at a time; a wish that is met clears both."""
    unmet = judge_mig_request(NodeRequests(mig_config="all-enabled"), [OFF])
    changing = judge_mig_request(NodeRequests(mig_config="all-enabled", mig_state="pending"), [OFF])
    met = judge_mig_request(NodeRequests(mig_config="all-disabled"), [OFF])
    assert [each.is_refused for each in (unmet, changing, met)] == [True, False, False]
    assert unmet.conditions() == {"mig-config-changing": {}, "mig-config-not-applied": {"": unmet.detail}}
    assert changing.conditions() == {"mig-config-changing": {"": changing.detail}, "mig-config-not-applied": {}}
    assert met.conditions() == {"mig-config-changing": {}, "mig-config-not-applied": {}}


HELD = Pause(label="a=paused-for-x", released_until=1000.0)


@pytest.mark.parametrize(
    ("wanted", "pause", "now", "step"),
    [
        ("", Pause(), 0.0, None),
        ("a=paused-for-x", Pause(), 0.0, Step.RELEASE),
        ("a=paused-for-x", HELD, 400.0, None),
        ("a=paused-for-x", HELD, 500.1, Step.RELEASE),
        ("b=paused-for-y", HELD, 400.0, Step.RELEASE),
        ("", HELD, 400.0, Step.RESUME),
        ("", HELD, 2000.0, Step.RESUME),
    ],
)
def test_a_release_is_renewed_at_half_time_and_ended_with_its_label(
    wanted: str, pause: Pause, now: float, step: Step | None
) -> None:
    """What nobody asked for here is not taken back here."""
    assert decide_step(wanted, pause, now, 1000.0) is step
