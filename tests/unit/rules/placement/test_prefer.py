"""Which devices a container had better get."""

from collections.abc import Sequence
from typing import Any

import pytest

from nodeagent.config.schema import Settings
from nodeagent.config.sections.plugin import DevicePluginSettings
from nodeagent.config.sections.sharing import SharedResource, SharingSettings, TimeSlicing
from nodeagent.model.gpu import Inventory, PathKind
from nodeagent.model.ids import DeviceId
from nodeagent.rules.offer.devices import Resource
from nodeagent.rules.offer.resources import plan_resources
from nodeagent.rules.placement.prefer import Preference
from nodeagent.rules.placement.spread import Policy
from nodeagent.rules.placement.topology import plan_topology
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory, make_node

SWITCHES = (PathKind.BRIDGE, PathKind.NODE, PathKind.SYSTEM)


def tree_paths(left: int, right: int) -> tuple[PathKind, int]:
    """Two GPUs on each PCIe switch, four on each socket, no links."""
    return next(
        path for path, near in zip(SWITCHES, (2, 4, 64), strict=True) if left // near == right // near
    ), 0  # fmt: skip


def cube_paths(left: int, right: int) -> tuple[PathKind, int]:
    """Eight GPUs wired to one another unevenly, as in the first boards with links."""
    double = {(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)}
    single = {(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)}
    links = 2 if (left, right) in double else 1 if (left, right) in single else 0
    return tree_paths(left, right)[0], links


def whole_gpus(inventory: Inventory, policy: Policy = "distributed") -> Preference:
    (resource,) = plan_resources(inventory, Settings()).resources
    return Preference(resource, plan_topology(inventory), policy)


def ids(*indexes: int) -> tuple[DeviceId, ...]:
    return tuple(DeviceId(gpu_uuid(index)) for index in indexes)


def indexes(answer: Sequence[DeviceId]) -> list[int]:
    return sorted(int(device[4:12], 16) for device in answer)


TREE = make_inventory([make_gpu(index) for index in range(8)], tree_paths)
CUBE = make_inventory([make_gpu(index) for index in range(8)], cube_paths)


@pytest.mark.parametrize(
    ("inventory", "available", "size", "expected"),
    [
        (TREE, range(8), 2, [0, 1]),
        (TREE, range(8), 4, [0, 1, 2, 3]),
        (TREE, (0, 2, 3, 5, 6), 2, [2, 3]),
        (TREE, (0, 2, 4, 5, 6, 7), 4, [4, 5, 6, 7]),
        (TREE, (7, 3), 1, [3]),
        (TREE, range(1, 8), 1, [1]),
        (TREE, (0, 1, 2, 4, 5, 6, 7), 1, [2]),
        (make_node(), range(8), 4, [0, 1, 2, 3]),
        (make_node(), (0, 1, 4, 5, 6, 7), 2, [0, 1]),
        (make_node(), (0, 1, 2, 5, 6, 7), 3, [0, 1, 2]),
        (CUBE, range(8), 2, [2, 3]),
        (CUBE, range(8), 4, [0, 1, 2, 3]),
    ],
)
def test_best_connected_group_wins_and_leaves_good_groups(
    inventory: Inventory, available: Sequence[int], size: int, expected: list[int]
) -> None:
    """The group and what is left over fit well together; a lone GPU goes before one whose partner is free."""
    assert expected == indexes(whole_gpus(inventory).prefer(ids(*available), (), size))


def test_required_devices_are_included_and_matched() -> None:
    """What must be included comes first and the others are those that fit it."""
    answer = whole_gpus(TREE).prefer(ids(*range(8)), ids(5), 2)
    assert ids(5, 4) == answer


def test_links_through_a_switch_count() -> None:
    """On a board with NVSwitch every pair scores its links, so that links and not PCIe paths dominate."""
    assert plan_topology(make_node()).scores[0][1] == 18 * 100 + 20


def test_links_are_capped_and_unknown_pairs_are_judged_by_node() -> None:
    """More links than a GPU can have count as eighteen; without a path the NUMA nodes are what is known."""
    linked = make_inventory([make_gpu(0), make_gpu(1)], lambda left, right: (PathKind.SELF, 99))
    unknown = make_inventory([make_gpu(0, numa_node=0), make_gpu(1, numa_node=0), make_gpu(2, numa_node=1)])
    assert plan_topology(linked).scores[0][1] == 60 + 1800
    assert plan_topology(unknown).scores == ((0, 20, 10), (20, 0, 10), (10, 10, 0))


def test_devices_to_avoid_go_last() -> None:
    """A device that a living pod holds is given away only when nothing else is left, and then as few as possible."""
    preference = whole_gpus(TREE)
    assert indexes(preference.prefer(ids(0, 1, 2, 3), (), 2, avoid=ids(0, 1))) == [2, 3]
    assert indexes(preference.prefer(ids(0, 1, 2, 3), (), 3, avoid=ids(0, 1))) == [0, 2, 3]


@pytest.mark.parametrize(
    ("available", "required", "size", "expected"),
    [
        ((0, 1), (), 0, []),
        ((0, 1), (), -1, []),
        ((0, 1), (0, 1), 1, []),
        ((0, 1), (), 3, [0, 1]),
        ((), (), 1, []),
        ((0, 0, 1, 1), (0, 0), 2, [0, 1]),
        ((0, 1), (5,), 2, [0, 5]),
        ((0, 99), (), 2, [0, 99]),
        ((99, 98), (), 1, [98]),
        ((0, 1, 99), (98,), 2, [0, 98]),
        ((0, 1), (0, 1), 2, [0, 1]),
    ],
)
def test_odd_requests_get_a_valid_answer(
    available: tuple[int, ...], required: tuple[int, ...], size: int, expected: list[int]
) -> None:
    """Contradictions, unknown and doubled devices and too few of them never fail a pod that could run."""
    assert expected == indexes(whole_gpus(TREE).prefer(ids(*available), ids(*required), size))


def test_answer_does_not_depend_on_order() -> None:
    """The kubelet's order is random; the answer is not."""
    preference = whole_gpus(CUBE)
    assert preference.prefer(ids(7, 1, 4, 2, 6), (), 3) == preference.prefer(ids(1, 2, 4, 6, 7), (), 3)


def test_many_whole_gpus_are_given_away_in_order() -> None:
    """Beyond what can be searched in time the answer is simply valid."""
    inventory = make_inventory([make_gpu(index) for index in range(40)])
    assert indexes(whole_gpus(inventory).prefer(ids(*range(1, 40)), (), 3)) == [1, 2, 3]


def test_large_irregular_mesh_is_answered_by_the_nearest_hierarchy() -> None:
    """Twelve GPUs in a ring form no hierarchy and are too many to search: the answer is good, and not called exact."""
    ring = make_inventory(
        [make_gpu(index) for index in range(12)],
        lambda left, right: (PathKind.SYSTEM, 4 if (right - left) % 12 in {1, 11} else 0),
    )
    explanation = whole_gpus(ring).explain(ids(*range(12)), (), 2)
    assert len(explanation.devices) == 2
    assert not explanation.exact


def shares(
    inventory: Inventory, policy: Policy, replicas: int = 4, strategy: Any = "none"
) -> tuple[Resource, Preference]:
    names = ("gpu", "mig-1g.10gb") if replicas > 1 else ()
    entries = tuple(SharedResource(name=name, replicas=replicas) for name in names)
    settings = Settings(
        device_plugin=DevicePluginSettings(mig_strategy=strategy),
        sharing=SharingSettings(timeSlicing=TimeSlicing(resources=entries) if entries else None),
    )
    (resource,) = plan_resources(inventory, settings).resources
    return resource, Preference(resource, plan_topology(inventory), policy)


def without(resource: Resource, *used: tuple[int, int]) -> list[DeviceId]:
    """The ids of a resource, less the first so many of one device after the other, given as (device, how many)."""
    taken: set[DeviceId] = set()
    uuids = list(dict.fromkeys(device.uuid for device in resource.devices))
    for device, count in used:
        taken |= set([each.id for each in resource.devices if each.uuid == uuids[device]][:count])
    return [device.id for device in resource.devices if device.id not in taken]


@pytest.mark.parametrize(
    ("policy", "used", "size", "expected"),
    [
        ("distributed", [], 3, "012"),
        ("distributed", [(0, 2), (1, 1)], 3, "122"),
        ("distributed", [(0, 1), (1, 1), (2, 1)], 4, "0012"),
        ("packed", [], 3, "000"),
        ("packed", [(1, 2)], 3, "011"),
        ("packed", [(1, 1), (2, 3)], 2, "12"),
        ("distributed", [], 12, "000011112222"),
    ],
)
def test_shares_are_spread_or_packed(policy: Policy, used: list[tuple[int, int]], size: int, expected: str) -> None:
    """`distributed` takes from the GPU least used, `packed` from the one most used; the lower index where equal."""
    resource, preference = shares(make_inventory([make_gpu(index) for index in range(3)]), policy)
    answer = preference.prefer(without(resource, *used), (), size)
    assert expected == "".join(sorted(str(int(device[4:12], 16)) for device in answer))


def test_required_shares_count_as_used() -> None:
    """The share that must be included makes its GPU the one used most."""
    resource, preference = shares(make_inventory([make_gpu(0), make_gpu(1)]), "distributed")
    required = resource.devices[0].id
    assert (required, resource.devices[4].id) == preference.prefer(without(resource), [required], 2)


@pytest.mark.parametrize(("policy", "expected"), [("packed", [1, 1]), ("distributed", [0, 1])])
def test_mig_devices_are_packed_by_the_gpu_around_them(policy: Policy, expected: list[int]) -> None:
    """`packed` fills the GPU that is already broken into, `distributed` takes the GPU least used first."""
    inventory = make_inventory([make_gpu(index, mig=["1g.10gb"] * 3) for index in range(2)])
    resource, preference = shares(inventory, policy, replicas=1, strategy="mixed")
    free = [device.id for device in resource.devices if device.index != "1:0"]
    assert expected == sorted(int(device[4:12], 16) for device in preference.prefer(free, (), 2))


def test_withheld_devices_go_last() -> None:
    """A device that must not be handed out is not preferred while there is another."""
    inventory = make_inventory([make_gpu(0), make_gpu(1, mig=["1g.10gb"])])
    settings = Settings(device_plugin=DevicePluginSettings(mig_strategy="single"))
    (resource,) = plan_resources(inventory, settings).resources
    preference = Preference(resource, plan_topology(inventory), "packed")
    assert len(preference.prefer([device.id for device in resource.devices], (), 1)) == 1


def test_explanation_names_choice_and_runner_up() -> None:
    """A person sees the answer, what it is worth, and the next best group with what that would be worth."""
    explanation = whole_gpus(TREE).explain(ids(0, 1, 2, 3), (), 2)
    assert explanation.choice is not None
    assert explanation.runner_up is not None
    assert (ids(0, 1), 50, 100) == (explanation.choice.devices, explanation.choice.score, explanation.choice.total)
    assert (ids(2, 3), 50, 100) == (
        explanation.runner_up.devices, explanation.runner_up.score, explanation.runner_up.total,
    )  # fmt: skip
    assert explanation.exact
    assert explanation.devices == whole_gpus(TREE).prefer(ids(0, 1, 2, 3), (), 2)


def test_explanation_of_a_mesh_has_a_runner_up() -> None:
    """The search of an irregular board names its second choice too."""
    explanation = whole_gpus(CUBE).explain(ids(*range(8)), ids(0), 4)
    assert explanation.choice is not None
    assert explanation.runner_up is not None
    assert explanation.choice.total >= explanation.runner_up.total
    assert DeviceId(gpu_uuid(0)) in explanation.runner_up.devices


@pytest.mark.parametrize(("available", "size"), [((0, 1), 2), ((0, 1), 0)])
def test_explanation_without_a_choice_says_so(available: tuple[int, ...], size: int) -> None:
    """Where nothing was weighed there is a rule and no score."""
    explanation = whole_gpus(TREE).explain(ids(*available), (), size)
    assert explanation.choice is None
    assert explanation.rule


def test_remembered_answers_stay_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are remembered up to a limit, and forgetting them changes none."""
    monkeypatch.setattr("nodeagent.rules.placement.prefer._REMEMBERED_MAX", 2)
    preference = whole_gpus(TREE)
    first = [preference.prefer(ids(*range(8)), (), size) for size in range(1, 7)]
    assert first == [preference.prefer(ids(*range(8)), (), size) for size in range(1, 7)]
    assert len(preference._remembered) <= 2
