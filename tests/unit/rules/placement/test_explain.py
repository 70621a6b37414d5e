"""Preferred allocation as a person asks for it."""

import pytest

from nodeagent.config.schema import Settings
from nodeagent.config.sections.sharing import SharedResource, SharingSettings, TimeSlicing
from nodeagent.model.errors import GpuUnknown, RequestInvalid
from nodeagent.model.ids import DeviceId
from nodeagent.rules.placement.explain import explain_preference, render_explanation
from nodeagent.rules.placement.prefer import Explanation, Group
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory, make_node

NODE = make_node(8)
SHARED = Settings(sharing=SharingSettings(timeSlicing=TimeSlicing(resources=(SharedResource(name="gpu", replicas=2),))))


def indexes(explanation: Explanation) -> list[int]:
    return [int(device[4:12], 16) for device in explanation.devices]


@pytest.mark.parametrize(
    ("available", "must_include", "size", "expected"),
    [
        ((), (), 4, [0, 1, 2, 3]),
        (("1", "2", gpu_uuid(5), "6", "7"), (), 3, [5, 6, 7]),
        ((), ("6",), 2, [6, 4]),
    ],
)
def test_devices_are_named_as_people_do(
    available: tuple[str, ...], must_include: tuple[str, ...], size: int, expected: list[int]
) -> None:
    """By index or UUID, and all of them when none is named."""
    explanation = explain_preference(
        NODE, Settings(), size=size, available=available, must_include=must_include, resource="nvidia.com/gpu"
    )
    assert indexes(explanation) == expected


def test_an_index_means_all_shares_of_a_gpu() -> None:
    """A GPU that is named stands for each of its shares, a share for itself."""
    node = make_inventory([make_gpu(0), make_gpu(1)])
    explanation = explain_preference(node, SHARED, size=3, available=("0", f"{gpu_uuid(1)}::1"))
    assert set(explanation.devices) == {f"{gpu_uuid(0)}::0", f"{gpu_uuid(0)}::1", f"{gpu_uuid(1)}::1"}


def test_what_a_pod_cannot_get_now_is_not_recommended() -> None:
    """Of what is free the best, as the kubelet would be told; where there is too little the pod waits."""
    free = [DeviceId(gpu_uuid(index)) for index in (1, 2, 5, 6, 7)]
    assert indexes(explain_preference(NODE, Settings(), size=3, free=free)) == [5, 6, 7]
    explanation = explain_preference(NODE, Settings(), size=6, free=free)
    assert (explanation.devices, explanation.rule) == ((), "a pod that asks for 6 waits: 5 of 8 are free and healthy")
    explanation = explain_preference(NODE, Settings(), size=1, must_include=("0",), free=free)
    assert explanation.rule.endswith(f"{gpu_uuid(0)} is not")
    assert indexes(explain_preference(NODE, Settings(), size=1, available=("0",), free=free)) == [0]


def test_a_slip_is_told() -> None:
    """A name that means nothing, and a resource that is not offered, are errors that say what there is."""
    with pytest.raises(GpuUnknown, match="no GPU '9': known are 0, 1"):
        explain_preference(NODE, Settings(), size=1, available=("9",))
    with pytest.raises(RequestInvalid, match=r"this node offers nvidia\.com/gpu"):
        explain_preference(NODE, Settings(), size=1, resource="nvidia.com/mig-1g.10gb")
    with pytest.raises(RequestInvalid, match="this node offers nothing"):
        explain_preference(make_inventory([]), Settings(), size=1, resource="nvidia.com/gpu")


def test_where_nothing_is_offered_a_pod_waits() -> None:
    """As where all is held: that the GPUs are gone is no slip of whoever asks."""
    explanation = explain_preference(make_inventory([]), Settings(), size=2)
    assert explanation == Explanation(devices=(), rule="a pod that asks for 2 waits: this node offers nothing")


def test_the_explanation_reads_well() -> None:
    """Choice, score and runner-up, line by line."""
    assert render_explanation(explain_preference(make_node(4), Settings(), size=2)) == (
        f"devices    {gpu_uuid(0)}, {gpu_uuid(1)}",
        "because    the best connected group whose loss leaves the best groups",
        "score      1820 within the group, 3640 with the groups that can be made of the rest",
        f"runner-up  {gpu_uuid(2)}, {gpu_uuid(3)}",
        "           1820 within the group, 3640 with the groups that can be made of the rest",
    )


def test_an_answer_without_a_choice_reads_well() -> None:
    """Where nothing was weighed there is a rule alone, and where nothing is proven that is said."""
    assert render_explanation(explain_preference(NODE, Settings(), size=0)) == (
        "devices    none",
        "because    the request contradicts itself: the kubelet chooses",
    )
    group = Group(devices=(DeviceId("a"),), score=1, total=2)
    lines = render_explanation(Explanation(devices=group.devices, rule="r", choice=group, exact=False))
    assert "there may be a better group" in lines[-1]
