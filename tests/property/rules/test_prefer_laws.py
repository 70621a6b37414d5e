"""Laws of preferred allocation, for any node, any request and any scores."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.rules.ids import render_device_id
from nodeagent.rules.offer.devices import PluginDevice, Resource
from nodeagent.rules.placement.grouping import Request, Scores, mask_of, positions_of
from nodeagent.rules.placement.hierarchy import choose_in_hierarchy, plan_tree
from nodeagent.rules.placement.mesh import choose_in_mesh
from nodeagent.rules.placement.prefer import Preference
from nodeagent.rules.placement.topology import Topology
from tests.support.examples import examples
from tests.support.gpus import gpu_uuid

Groups = list[tuple[int, ...]]


@st.composite
def any_scores(draw: st.DrawFn, size: int) -> Scores:
    table = [[0] * size for _ in range(size)]
    for right in range(size):
        for left in range(right):
            table[left][right] = table[right][left] = draw(st.sampled_from([10, 20, 50, 110, 1810]))
    return table


@st.composite
def tree_scores(draw: st.DrawFn, size: int) -> Scores:
    """Scores of a hierarchy, its GPUs in any order."""
    order = draw(st.permutations(range(size)))
    levels = draw(st.sampled_from([((2, 50), (4, 40)), ((3, 50),), ((2, 1250), (4, 40), (8, 20)), ()]))
    return [
        [
            0 if left == right else next((score for near, score in levels if left // near == right // near), 10)
            for right in order
        ]
        for left in order
    ]


@st.composite
def requests(draw: st.DrawFn, size: int) -> Request:
    available = sorted(draw(st.sets(st.integers(0, size - 1), min_size=1)))
    wanted = draw(st.integers(1, len(available)))
    required = draw(st.sets(st.sampled_from(available), max_size=wanted))
    return Request(available=mask_of(available), required=mask_of(sorted(required)), size=wanted)


def every_cut(members: tuple[int, ...], size: int) -> Iterator[Groups]:
    """Every way to cut the members into groups of this size and one smaller remainder."""
    if not members:
        yield []
        return
    sizes = {len(members)} if len(members) < size else {size, len(members) % size} - {0}
    for count in sizes:
        for others in combinations(members[1:], count - 1):
            group = (members[0], *others)
            rest = tuple(member for member in members if member not in group)
            yield from ([group, *groups] for groups in every_cut(rest, size))


def best_by_trying_all(scores: Scores, request: Request) -> tuple[int, int, int, tuple[int, ...]]:
    def worth(group: Sequence[int]) -> int:
        return sum(scores[left][right] for left, right in combinations(group, 2))

    members = positions_of(request.available)
    required = set(positions_of(request.required))
    return max(
        (
            sum(map(worth, groups)),
            worth(group),
            -sum(scores[left][right] for left in group for right in members if right not in group),
            tuple(-position for position in group),
        )
        for groups in every_cut(members, request.size)
        for group in groups
        if len(group) == request.size and required <= set(group)
    )


@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_mesh_search_finds_the_optimum(data: st.DataObject) -> None:
    """For any scores the bounded search agrees with trying every cut, ties included."""
    size = data.draw(st.integers(1, 7))
    scores, request = data.draw(any_scores(size)), data.draw(requests(size))
    assert best_by_trying_all(scores, request) == choose_in_mesh(scores, request).order


@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_hierarchy_search_finds_the_optimum(data: st.DataObject) -> None:
    """For any hierarchy counting along the tree agrees with trying every cut."""
    size = data.draw(st.integers(1, 8))
    scores, request = data.draw(tree_scores(size)), data.draw(requests(size))
    tree = plan_tree(scores, request.available)
    assert tree.fits(scores)
    assert best_by_trying_all(scores, request)[:3] == choose_in_hierarchy(scores, request, tree)[:3]


@settings(max_examples=examples(50), deadline=None)
@given(st.data())
def test_both_searches_agree_on_ten_gpus(data: st.DataObject) -> None:
    """Where trying everything takes too long the two ways of searching still confirm each other."""
    scores, request = data.draw(tree_scores(10)), data.draw(requests(10))
    tree = plan_tree(scores, request.available)
    assert choose_in_mesh(scores, request)[:3] == choose_in_hierarchy(scores, request, tree)[:3]


@st.composite
def offers(draw: st.DrawFn) -> Preference:
    """A resource of whole GPUs, or of shares, with any topology."""
    count = draw(st.integers(1, 6))
    replicas = draw(st.integers(0, 3))
    devices = tuple(
        PluginDevice(
            id=render_device_id(gpu_uuid(gpu), replica),
            uuid=gpu_uuid(gpu),
            gpu=gpu_uuid(gpu),
            index=str(gpu),
            replica=replica,
        )
        for gpu in range(count)
        for replica in (range(replicas) if replicas else [None])
    )
    scores = draw(any_scores(count))
    topology = Topology(gpus=tuple(map(gpu_uuid, range(count))), scores=tuple(map(tuple, scores)))
    resource = Resource(name=ResourceName("nvidia.com/gpu"), devices=devices)
    return Preference(resource, topology, "packed" if draw(st.booleans()) else "distributed")


NAMES = st.lists(
    st.builds(
        lambda gpu, replica: render_device_id(gpu_uuid(gpu), replica), st.integers(0, 7), st.none() | st.integers(0, 3)
    ),
    max_size=16,
)


@settings(max_examples=examples(300), deadline=None)
@given(offers(), NAMES, NAMES, st.integers(-2, 20), NAMES)
def test_answer_has_the_size_the_required_and_only_what_is_available(
    preference: Preference, available: list[DeviceId], required: list[DeviceId], size: int, avoid: list[DeviceId]
) -> None:
    """As many as asked and possible, all that must be included, no other than available, none twice."""
    answer = preference.prefer(available, required, size, avoid)
    assert len(answer) == len(set(answer))
    if size <= 0 or size < len(set(required)):
        assert answer == ()
        return
    assert min(size, len({*available, *required})) == len(answer)
    assert set(required) <= set(answer) <= {*available, *required}


@settings(max_examples=examples(100), deadline=None)
@given(offers(), NAMES, st.integers(1, 8), st.randoms(use_true_random=False))
def test_answer_does_not_depend_on_order(
    preference: Preference, available: list[DeviceId], size: int, random: Random
) -> None:
    shuffled = random.sample(available, len(available))
    assert preference.prefer(available, (), size) == preference.prefer(shuffled, (), size)
