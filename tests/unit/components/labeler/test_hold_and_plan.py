"""When labels are published, and what is written for it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.components.labeler.hold import Published, decide_published, decide_wait
from nodeagent.components.labeler.plan import (
    keep_last_good,
    parse_features,
    plan_label_patch,
    render_features,
    select_features,
    stamp,
)

HOLD = 10.0
COUNT, MODE, HEALTHY, UNHEALTHY, STAMP = (
    "nvidia.com/gpu.count",
    "nvidia.com/gpu.mode",
    "nvidia.com/gpu.healthy.count",
    "nvidia.com/gpu.unhealthy.count",
    "nvidia.com/gfd.timestamp",
)


def publish(*steps: tuple[float, dict[str, str]]) -> Published:
    published: Published | None = None
    for now, wanted in steps:
        published = decide_published(published, wanted, now, HOLD)
    assert published is not None
    return published


def test_the_first_labels_wait_for_nothing() -> None:
    """A node that starts is labelled at once."""
    assert publish((0, {MODE: "compute"})).labels == {MODE: "compute"}


def test_a_change_must_last() -> None:
    """Before its time a change is not seen, at its time it is, whether it adds, alters or removes."""
    start = {MODE: "compute", HEALTHY: "7"}
    then = {HEALTHY: "8", "nvidia.com/new": "1"}
    early = publish((0, start), (1, then), (10.9, then))
    assert early.labels == start
    assert decide_wait(early, 10.9, HOLD) == pytest.approx(0.1)
    late = publish((0, start), (1, then), (11, then))
    assert late.labels == then
    assert decide_wait(late, 11, HOLD) is None


def test_what_flaps_is_never_published() -> None:
    """A value that comes back within the time starts anew at its next change."""
    start, other = {HEALTHY: "7"}, {HEALTHY: "8"}
    assert publish((0, start), (1, other), (9, start), (10, other), (19, other)).labels == start


def test_one_that_flaps_holds_up_no_other() -> None:
    """Each label waits by itself."""
    published = publish(
        (0, {HEALTHY: "7", MODE: "a"}),
        (1, {HEALTHY: "8", MODE: "b"}),
        (6, {HEALTHY: "7", MODE: "b"}),
        (11, {HEALTHY: "8", MODE: "b"}),
    )
    assert published.labels == {HEALTHY: "7", MODE: "b"}


def test_a_loss_is_told_at_once_and_a_return_must_last() -> None:
    """With the counts that add up with it, and nothing else; one that flaps stays lost."""
    start = {HEALTHY: "8", UNHEALTHY: "0", MODE: "a"}
    loss = {HEALTHY: "7", UNHEALTHY: "1", MODE: "b"}
    assert publish((0, start), (1, loss)).labels == {HEALTHY: "7", UNHEALTHY: "1", MODE: "a"}
    assert publish((0, start), (1, loss), (2, start), (11, start)).labels == loss | {MODE: "a"}
    assert publish((0, start), (1, loss), (2, start), (12, start)).labels == start
    assert publish((0, start), (1, loss), (2, start), (9, loss), (10, start), (19, start)).labels == loss | {MODE: "a"}


def test_what_turns_out_to_be_unhealthy_is_told_at_once() -> None:
    """Of GPUs that nobody knew: a driver that hung and is gone then. What turns out to be healthy must last."""
    unknown = {HEALTHY: "0", UNHEALTHY: "0"}
    bad, mixed = {HEALTHY: "0", UNHEALTHY: "4"}, {HEALTHY: "3", UNHEALTHY: "1"}
    assert publish((0, unknown), (1, bad)).labels == bad
    assert publish((0, unknown), (1, bad), (2, unknown)).labels == bad
    assert publish((0, unknown), (1, mixed)).labels == unknown
    assert publish((0, unknown), (1, mixed), (11, mixed)).labels == mixed


def test_capacity_is_published_at_once_with_all_that_goes_with_it() -> None:
    """Schedulers reckon with it, and a new count beside an old product would be wrong."""
    published = publish((0, {COUNT: "8", MODE: "a"}), (1, {COUNT: "7", MODE: "b"}))
    assert published == Published(labels={COUNT: "7", MODE: "b"})


KEYS = st.sampled_from([COUNT, MODE, HEALTHY, STAMP, "nvidia.com/a", "feature.node.kubernetes.io/b", "team"])
LABELS = st.dictionaries(KEYS, st.sampled_from(["1", "2", ""]))


@given(wanted=LABELS, in_place=LABELS, owned=st.sets(KEYS))
def test_a_patch_applied_twice_is_applied_once_and_touches_nothing_foreign(
    wanted: dict[str, str], in_place: dict[str, str], owned: set[str]
) -> None:
    """After one application nothing is left to do, and whatever was not ours is as it was."""
    owned &= in_place.keys()
    plan = plan_label_patch(wanted, in_place, owned)
    foreign = {key: value for key, value in in_place.items() if key not in owned}
    after = foreign | (plan.apply if plan.apply is not None else {key: in_place[key] for key in owned})
    assert {key: after[key] for key in foreign} == foreign
    ours = after.keys() - foreign.keys()
    assert plan_label_patch(wanted, after, ours).apply is None
    assert {key: after[key] for key in ours} == {key: wanted[key] for key in wanted.keys() - foreign.keys()}
    assert set(plan.changed) <= set(wanted) | owned


def test_another_value_of_somebody_else_is_a_conflict() -> None:
    """It is told, but not where others describe the node in their own words or the time is theirs."""
    wanted = {COUNT: "8", STAMP: "2", "feature.node.kubernetes.io/b": "1", MODE: "compute"}
    in_place = {COUNT: "7", STAMP: "1", "feature.node.kubernetes.io/b": "2", MODE: "compute"}
    plan = plan_label_patch(wanted, in_place, ())
    assert plan.apply is None
    assert plan.contested == {COUNT: "7"}


def test_the_last_of_our_labels_can_go() -> None:
    """Nothing wanted: everything of ours is taken off by an empty set."""
    plan = plan_label_patch({}, {COUNT: "8", "team": "a"}, (COUNT,))
    assert (plan.apply, plan.changed) == ({}, (COUNT,))


@pytest.mark.parametrize(
    ("in_place", "time"),
    [
        ({}, "100"),
        ({COUNT: "8", STAMP: "5"}, "5"),
        ({COUNT: "7", STAMP: "5"}, "100"),
        ({COUNT: "8"}, "100"),
        ({COUNT: "8", MODE: "a", STAMP: "5"}, "100"),
    ],
)
def test_the_timestamp_is_that_of_the_last_change(in_place: dict[str, str], time: str) -> None:
    """A restart, or a second look, is no change."""
    assert stamp({COUNT: "8"}, in_place, 100.7) == {COUNT: "8", STAMP: time}


def test_a_feature_file_is_read_as_it_was_written() -> None:
    """The file says the labels, sorted, but not those that its reader finds by itself."""
    labels = {MODE: "compute", COUNT: "8", "nvidia.com/cuda.driver.rev": "", "feature.node.kubernetes.io/b": "1"}
    features = select_features(labels)
    assert render_features(features) == f"nvidia.com/cuda.driver.rev=\n{COUNT}=8\n{MODE}=compute\n"
    assert parse_features(render_features(features)) == features
    assert parse_features("# +no-label\n\nflag\n") == {"flag": "true"}


def test_a_stamped_patch_is_applied_once() -> None:
    """Looking again later, beside a conflict or not, changes nothing; a foreign timestamp stays as it is."""
    in_place = {MODE: "theirs"}
    first = plan_label_patch({COUNT: "8", MODE: "compute"}, in_place, (), 100)
    assert first.apply == {COUNT: "8", STAMP: "100"}
    after = in_place | first.apply
    assert plan_label_patch({COUNT: "8", MODE: "compute"}, after, first.apply, 200).apply is None
    assert plan_label_patch({COUNT: "8"}, {STAMP: "5"}, (), 100).apply == {COUNT: "8"}


def test_an_earlier_life_is_believed_about_gpus_only() -> None:
    """What cannot be asked yet is kept; what is known now wins; the time and the health of then go."""
    ours = {COUNT: "8", HEALTHY: "8", STAMP: "5", "nvidia.com/vgpu.present": "true"}
    kept = keep_last_good({"nvidia.com/vgpu.present": "false"}, ours)
    assert kept == {COUNT: "8", "nvidia.com/vgpu.present": "false"}
