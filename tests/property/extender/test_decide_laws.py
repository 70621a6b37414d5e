"""Laws of the extender: its numbers say what the evaluators say, and nothing is ever given twice."""

from collections.abc import Mapping
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.extender.place_pod import place_pod
from nodeagent.model.gpu import Inventory
from nodeagent.model.scheduling import SeenNode
from nodeagent.rules.fractions.choices import Choice, ChosenFraction, render_choice
from nodeagent.rules.fractions.foreign_nodes import read_node
from nodeagent.rules.fractions.profiles import CoresProfile, CountedProfile
from nodeagent.rules.fractions.published import ANNOTATION
from nodeagent.rules.fractions.selection import UNWANTED_GPUS, narrow
from tests.property.rules.test_placement_laws import inventories
from tests.support.gpus import gpu_uuid
from tests.support.scheduling import SHARE, FakeScheduler, limit, make_pod, publish

cores_limits = st.builds(limit, st.integers(1, 99), st.integers(1, 140)) | st.integers(1, 5).map(
    lambda count: limit(100 * count)
)
shares_limits = st.fixed_dictionaries(
    {SHARE: st.integers(1, 3).map(str)},
    optional={
        "nvidia.com/gpumem": st.integers(1, 40000).map(str),
        "nvidia.com/gpumem-percentage": st.integers(1, 100).map(str),
        "nvidia.com/gpucores": st.integers(1, 100).map(str),
    },
)


def make_node(name: str, inventory: Inventory, profile: str, chance: Random) -> SeenNode:
    """Some of its GPUs may be withheld."""
    withheld: dict[str, str] = {gpu.uuid: "it is lost" for gpu in inventory.gpus if chance.random() < 0.1}
    text = publish(inventory, profile="hami" if profile == "hami" else "tencent", withheld=withheld, users_max=3)
    return SeenNode(name=name, annotations={ANNOTATION: text})


@given(st.data(), st.sampled_from(["tencent", "hami"]), st.integers(0, 1000))
def test_numbers_say_what_the_evaluators_say(data: st.DataObject, profile: str, seed: int) -> None:
    """Of every container alone: room by the one is room by the other, on nodes in any state, for any wish."""
    chance = Random(seed)
    limits: st.SearchStrategy[Mapping[str, str]] = cores_limits if profile == "tencent" else shares_limits
    scheduler = FakeScheduler(make_node("n", data.draw(inventories()), profile, chance))
    for number, each in enumerate(data.draw(st.lists(limits, max_size=12))):
        scheduler.schedule(make_pod(f"p{number}", each))
    unwanted = ",".join(gpu_uuid(index) for index in range(10) if chance.random() < 0.3)
    annotations = data.draw(st.sampled_from([{}, {UNWANTED_GPUS: unwanted}]))
    pod = scheduler.read(make_pod("x", data.draw(limits), annotations=annotations))
    account = scheduler.cluster.find_space("n")
    assert account is not None
    assert pod.demand is not None
    verdict = scheduler.decider.judge(pod, "n")
    models = account.published.models
    assert (verdict.rank is not None) == place_pod(narrow(account.space, models, pod.selection), pod.demand).fits
    could = place_pod(narrow(account.published.space, models, pod.selection), pod.demand).fits
    assert verdict.is_hopeless == (not could)
    assert (verdict.text == "") == (verdict.rank is not None)


@given(st.lists(inventories(), min_size=1, max_size=3), st.lists(cores_limits, max_size=16), st.integers(1, 99))
def test_a_part_goes_where_one_evaluator_for_all_nodes_would_put_it(
    nodes: list[Inventory], limits: list[Mapping[str, str]], cores: int
) -> None:
    """On no node does the evaluator find a GPU with less left than on the node that is chosen."""
    scheduler = FakeScheduler(
        *(make_node(f"n{number}", each, "tencent", Random(1)) for number, each in enumerate(nodes))
    )
    for number, each in enumerate(limits):
        scheduler.schedule(make_pod(f"p{number}", each))
    pod = make_pod("x", limit(cores, 1))
    demand = scheduler.read(pod).demand
    assert demand is not None
    left: dict[str, tuple[int, int]] = {}
    for name in scheduler.names:
        account = scheduler.cluster.find_space(name)
        assert account is not None
        for part in place_pod(account.space, demand).parts:
            room = next(each for each in account.space.rooms if each.gpu == part.gpu)
            left[name] = room.free_cores, room.free_bytes // account.space.block_bytes
    chosen, _ = scheduler.schedule(pod)
    assert left.get(chosen) == (min(left.values()) if left else None)


@given(st.data(), st.sampled_from(["tencent", "hami"]), st.integers(0, 1000))
def test_what_the_numbers_refuse_no_evaluator_could_place(data: st.DataObject, profile: str, seed: int) -> None:
    """The numbers may hope in vain that all containers fit, but not refuse in vain; asked again they say the same."""
    chance = Random(seed)
    limits: st.SearchStrategy[Mapping[str, str]] = cores_limits if profile == "tencent" else shares_limits
    scheduler = FakeScheduler(*(make_node(name, data.draw(inventories()), profile, chance) for name in "nm"))
    for number, each in enumerate(data.draw(st.lists(limits, max_size=8))):
        scheduler.schedule(make_pod(f"p{number}", each))
    together = data.draw(st.lists(limits, min_size=2, max_size=6))
    seen = make_pod("x", *together, init=data.draw(st.lists(limits, max_size=1)))
    pod = scheduler.read(seen)
    assert pod.demand is not None
    first = scheduler.ask(seen)
    for name in scheduler.names:
        account = scheduler.cluster.find_space(name)
        assert account is not None
        fits = place_pod(account.space, pod.demand).fits
        assert fits == (name in first.fitting)
        if name in first.hopeless:
            assert not place_pod(account.published.space, pod.demand).fits
    again = scheduler.ask(seen)
    assert (again.fitting, {**again.failed}, {**again.hopeless}) == (first.fitting, first.failed, first.hopeless)


@given(
    st.lists(inventories(), min_size=1, max_size=3),
    st.lists(
        st.tuples(st.lists(cores_limits, min_size=1, max_size=2), st.lists(cores_limits, max_size=1)), max_size=12
    ),
    st.integers(0, 2**32),
)
def test_nothing_is_ever_given_twice(
    nodes: list[Inventory], pods: list[tuple[list[Mapping[str, str]], list[Mapping[str, str]]]], seed: int
) -> None:
    """Pods of several containers come, are bound with their annotations, and go, in any order."""
    chance = Random(seed)
    scheduler = FakeScheduler(*(make_node(f"n{number}", each, "tencent", chance) for number, each in enumerate(nodes)))
    living: list[str] = []
    for number, (limits, init) in enumerate(pods):
        pod = make_pod(f"p{number}", *limits, init=init)
        found = scheduler.ask(pod, only_best=True)
        if found.chosen is not None:
            node, placement = found.chosen
            read = scheduler.read(pod)
            assert read.demand is not None
            parts = {
                each: tuple(ChosenFraction(index=int(part.gpu[4:12], 16), part=part) for part in placed.shares)
                for each, placed in placement.placements.items()
            }
            choice = Choice(
                node=node, time_nanoseconds=number, parts=parts, containers=3, init_containers=len(pod.init_containers)
            )
            written = render_choice(CoresProfile(), choice)
            scheduler.cluster.assume(read, node, placement.parts, written, 1.0)
            if chance.random() < 0.7:
                scheduler.cluster.note_pod(
                    make_pod(f"p{number}", *limits, init=init, node=node, annotations=written), 0.0
                )
                account = scheduler.cluster.find_space(node)
                assert account is not None
                assert set(account.taken[pod.uid]) == set(placement.parts)
                assert not account.guessed
            living.append(pod.uid)
        if living and chance.random() < 0.4:
            scheduler.cluster.drop_pod(living.pop(chance.randrange(len(living))))
        for name in scheduler.names:
            account = scheduler.cluster.find_space(name)
            assert account is not None
            assert not any(room.is_overcommitted for room in account.space.rooms)
    for uid in living:
        scheduler.cluster.drop_pod(uid)
    assert not scheduler.cluster.holds
    for name in scheduler.names:
        account = scheduler.cluster.find_space(name)
        assert account is not None
        assert account.space == account.published.space


@given(st.dictionaries(st.sampled_from(["tencent.com/vcuda-core", "tencent.com/vcuda-memory"]), st.text(max_size=8)))
def test_any_capacity_is_read_or_refused(capacity: dict[str, str]) -> None:
    scheduler = FakeScheduler(SeenNode(name="n", capacity=capacity))
    entry = scheduler.cluster.nodes["n"]
    assert entry.published is None or entry.published.space.rooms
    assert entry.problem or read_node(CoresProfile(), CountedProfile(), {}, capacity) == entry.published
