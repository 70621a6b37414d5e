"""Which nodes a pod may go to, in which order, and why not to the others."""

from collections.abc import Mapping
from typing import get_args

import pytest

from nodeagent.extender import decide
from nodeagent.extender.decide import STEP
from nodeagent.extender.messages import ELSEWHERE, HELD, NOT_ASKED, NOTHING, TOGETHER, UNKNOWN
from nodeagent.extender.place_pod import PodPlacement, place_pod
from nodeagent.model.scheduling import SeenNode, SeenPod
from nodeagent.rules.fractions.demands import PodDemand
from nodeagent.rules.fractions.published import ANNOTATION, HeldBack
from nodeagent.rules.fractions.selection import UNWANTED_GPUS, WANTED_MODELS
from nodeagent.rules.placement.space import Space
from tests.support.gpus import gpu_uuid, make_inventory
from tests.support.placement import eight, make_sized, six
from tests.support.scheduling import (
    CORE,
    MEMORY,
    NO_LIMITS,
    SHARE,
    FakeScheduler,
    limit,
    make_plain_node,
    make_pod,
    make_seen_node,
    publish,
)

SOME_HELD = "2 of 8 GPUs unhealthy, 1 held back for a MIG layout"
FULL_SHARES = make_pod("x", {SHARE: "1", "nvidia.com/gpumem": "1000"})


def pods_of_original() -> list[tuple[SeenPod, tuple[str, tuple[int, ...]]]]:
    """The original's worked example: three nodes of two GPUs with four blocks each."""
    return [
        (make_pod("a", limit(10, 1), limit(10, 1)), ("n0", (0, 0))),
        (make_pod("b", limit(100, 3), limit(80, 3)), ("n1", (0, 1))),
        (make_pod("c", limit(200, 10), NO_LIMITS), ("n2", (0,))),
        (make_pod("d", limit(10, 2), NO_LIMITS), ("n0", (0,))),
    ]


def test_nodes_of_the_original_are_chosen_as_by_the_original() -> None:
    """By capacity alone: the fullest node that fits, then its name."""
    scheduler = FakeScheduler(*(make_plain_node(f"n{number}", 200, 8) for number in range(3)))
    assert [scheduler.schedule(pod) for pod, _ in pods_of_original()] == [wanted for _, wanted in pods_of_original()]


def test_a_part_goes_to_the_gpu_on_which_the_least_is_left() -> None:
    """Of the whole cluster, though another node is fuller; among equal GPUs to the fuller node."""
    scheduler = FakeScheduler(*(make_seen_node(name, eight()) for name in ("fuller", "tight", "tight-too")))
    fill(scheduler, "fuller", *[(40, 1)] * 8)
    fill(scheduler, "tight", (70, 1))
    fill(scheduler, "tight-too", (70, 1), (90, 1))
    assert scheduler.schedule(make_pod("a", limit(30, 1))) == ("tight-too", (0,))
    assert scheduler.schedule(make_pod("b", limit(30, 1))) == ("tight", (0,))
    assert scheduler.schedule(make_pod("c", limit(30, 1)))[0] == "fuller"
    assert scheduler.schedule(make_pod("d", limit(10, 1), limit(5, 1)))[0] == "tight-too"


def test_spread_takes_the_emptiest_node() -> None:
    """One after the other, by name among equal ones; a pod may say otherwise."""
    scheduler = FakeScheduler(*(make_plain_node(f"n{number}", 200, 8) for number in range(3)), policy="spread")
    assert [scheduler.schedule(make_pod(name, limit(10, 1)))[0] for name in "abcd"] == ["n0", "n1", "n2", "n0"]
    packed = make_pod("e", limit(10, 1), annotations={"hami.io/node-scheduler-policy": "binpack"})
    assert scheduler.schedule(packed)[0] == "n0"
    spread = make_pod("f", limit(10, 1), annotations={"hami.io/node-scheduler-policy": "spread"})
    assert scheduler.schedule(spread)[0] == "n1"
    odd = make_pod("g", limit(10, 1), annotations={"hami.io/node-scheduler-policy": "whatever"})
    assert scheduler.schedule(odd)[0] == "n2"


def test_several_gpus_go_where_they_are_near() -> None:
    """A full node whose free GPUs are far apart is no better than an empty one for a pod that needs two."""
    scheduler = FakeScheduler(make_seen_node("far", eight()), make_seen_node("near", eight()))
    for number, taken in enumerate((0, 2, 5, 7)):
        request = {"tencent.com/predicate-gpu-idx-0": str(taken)}
        scheduler.cluster.note_pod(make_pod(f"p{number}", limit(100), node="far", annotations=request), 0.0)
    assert scheduler.schedule(make_pod("two", limit(200))) == ("near", (0,))
    assert scheduler.schedule(make_pod("one", limit(100)))[0] == "far"


def test_one_gpu_goes_where_the_least_is_broken() -> None:
    """Into a pair that is broken already, though another node is fuller."""
    scheduler = FakeScheduler(make_seen_node("broken", six()), make_seen_node("fuller", six()))
    for name, node, taken in (("a", "broken", "4"), ("b", "fuller", "0,1")):
        request = {"tencent.com/predicate-gpu-idx-0": taken}
        count = 100 * len(taken.split(","))
        scheduler.cluster.note_pod(make_pod(name, limit(count), node=node, annotations=request), 0.0)
    assert scheduler.schedule(make_pod("one", limit(100))) == ("broken", (5,))


def fill(scheduler: FakeScheduler, node: str, *used: tuple[int, int]) -> None:
    """Cores and blocks of each GPU, in order; nothing of one with none."""
    for index, (cores, blocks) in enumerate(used):
        if cores:
            request = {"tencent.com/predicate-gpu-idx-0": str(index)}
            pod = make_pod(f"{node}-{index}", limit(cores, blocks), node=node, annotations=request)
            scheduler.cluster.note_pod(pod, 0.0)


@pytest.mark.parametrize(
    ("used", "limits", "text"),
    [
        (
            ((60, 100), (60, 100), (80, 8)),
            limit(30, 32),
            "2 GPUs with 30 cores free, but none also with 8 GiB of memory",
        ),
        (((60, 100), (80, 8), (80, 8)), limit(30, 32), "1 GPU with 30 cores free, but none also with 8 GiB of memory"),
        (((80, 8), (80, 8), (80, 8)), limit(30, 32), "no GPU with 30 cores free"),
        (((1, 1), (1, 1), (1, 1)), limit(100), "no GPU that nobody has a part of"),
        (((1, 1), (0, 0), (1, 1)), limit(200), "1 GPU that nobody has a part of, 2 are asked for"),
        (((1, 1), (1, 1), (1, 1)), limit(200), "no GPU that nobody has a part of, 2 are asked for"),
        (((1, 1), (0, 0), (0, 0)), limit(300), "2 GPUs that nobody has a part of, 3 are asked for"),
    ],
)
def test_what_is_missing_is_said_in_words(
    used: tuple[tuple[int, int], ...], limits: Mapping[str, str], text: str
) -> None:
    """So that a person knows what to change; the end of other pods would help."""
    scheduler = FakeScheduler(make_plain_node("n", 300, 360))
    fill(scheduler, "n", *used)
    found = scheduler.ask(make_pod("x", limits))
    assert (found.fitting, found.failed, found.hopeless) == ((), {"n": text}, {})


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({SHARE: "3", "nvidia.com/gpumem": "30000"}, "2 GPUs with 29.3 GiB of memory free, 3 are asked for"),
        (
            {SHARE: "3", "nvidia.com/gpumem": "30000", "nvidia.com/gpucores": "50"},
            "2 GPUs with 50 cores and 29.3 GiB of memory free, 3 are asked for",
        ),
        ({SHARE: "1", "nvidia.com/gpumem": "40000"}, "no GPU with 39.1 GiB of memory free"),
        (
            {SHARE: "1", "nvidia.com/gpumem": "40000", "nvidia.com/gpucores": "9"},
            "2 GPUs with 9 cores free, but none also with 39.1 GiB of memory",
        ),
        ({SHARE: "3", "nvidia.com/gpumem-percentage": "50"}, "2 GPUs with 50 % of memory free, 3 are asked for"),
    ],
)
def test_what_no_pods_end_would_mend_is_said_to_be_so(limits: Mapping[str, str], text: str) -> None:
    """Kube-scheduler then evicts nobody for it."""
    scheduler = FakeScheduler(make_seen_node("n", make_inventory(make_sized(2)), profile="hami"))
    found = scheduler.ask(make_pod("x", limits))
    assert (found.fitting, found.failed, found.hopeless) == ((), {}, {"n": text})


def test_a_full_gpu_serves_not_even_memory() -> None:
    """A pod that asks for no cores cannot have a GPU whose cores are all given."""
    scheduler = FakeScheduler(make_seen_node("n", make_inventory(make_sized(1)), profile="hami"))
    scheduler.cluster.note_pod(make_pod("whole", {SHARE: "1"}, node="n"), 0.0)
    assert scheduler.ask(FULL_SHARES).failed == {"n": "no GPU with any cores free"}


def test_nodes_that_cannot_be_judged_say_why() -> None:
    """Not known yet, without parts of GPUs, of other names, or with an annotation that makes no sense."""
    scheduler = FakeScheduler(
        SeenNode(name="plain"),
        make_seen_node("other", six(), profile="hami"),
        SeenNode(name="odd", annotations={ANNOTATION: "{}"}),
    )
    pod = scheduler.read(make_pod("x", limit(10, 1)))
    found = scheduler.decider.filter(pod, ("gone", "plain", "other", "odd"), only_best=True)
    assert found.failed["gone"] == UNKNOWN
    assert found.failed["odd"].startswith("cannot read nvidia.com/gpu-fractions of the node: ")
    assert found.hopeless == {
        "plain": NOTHING,
        "other": "this node gives out parts of GPUs by the names of hami, the pod asks by those of tencent",
    }
    assert found.chosen is None


@pytest.mark.parametrize(
    ("held", "limits", "text"),
    [
        (dict.fromkeys(range(8), "unhealthy"), [limit(30, 1)], "8 of 8 GPUs unhealthy"),
        (
            {0: "unhealthy", 1: "unhealthy", 2: "mig"},
            [limit(800)],
            f"5 GPUs that nobody has a part of, 8 are asked for ({SOME_HELD})",
        ),
        (
            {**dict.fromkeys(range(4), "elsewhere"), **dict.fromkeys(range(4, 8), "door")},
            [limit(30, 1)],
            "4 of 8 GPUs behind a closed door, 4 given out by another door",
        ),
        (
            dict.fromkeys(range(8), "node"),
            [limit(30, 1)],
            "8 of 8 GPUs held back by the node's driver, runtime or MPS daemons",
        ),
        (dict.fromkeys(range(8), "cordon"), [limit(30, 1)], "8 of 8 GPUs cordoned"),
        ({0: "a word of a later version"}, [limit(400), limit(400)], f"{TOGETHER} (1 of 8 GPUs held back)"),
    ],
)
def test_gpus_that_are_held_back_are_told_as_that(
    held: Mapping[int, str], limits: list[Mapping[str, str]], text: str
) -> None:
    """With how many of the node's they are, and alone where nothing else is left; each by the node that they are of."""
    scheduler = FakeScheduler(
        SeenNode(name="n", annotations={ANNOTATION: publish(eight(), held=held)}),
        make_seen_node("small", make_inventory(make_sized(1))),
    )
    found = scheduler.ask(make_pod("x", *limits))
    assert found.hopeless["n"] == text
    assert "held back" not in found.hopeless.get("small", "")
    assert set(HELD) == set(get_args(HeldBack))


def test_an_impossible_request_is_told_on_every_node() -> None:
    """At once, with key, value and remedy; no eviction would help."""
    scheduler = FakeScheduler(make_seen_node("n", six()))
    found = scheduler.ask(make_pod("x", limit(150)))
    assert set(found.hopeless) == {"n"}
    assert found.hopeless["n"].startswith(f"{CORE}: container c0: 150 is more than one GPU")
    assert scheduler.decider.prioritize(scheduler.read(make_pod("x", limit(150))), ("n",)) == [("n", 0)]


@pytest.mark.parametrize(
    ("annotations", "text"),
    [
        ({WANTED_MODELS: "A100"}, "no GPU that the pod allows with 30 cores free"),
        (
            {UNWANTED_GPUS: ",".join(gpu_uuid(index) for index in range(6))},
            "no GPU that the pod allows with 30 cores free",
        ),
    ],
)
def test_wishes_and_bans_hold(annotations: Mapping[str, str], text: str) -> None:
    """By model and by UUID; what the node has is not what the pod wants."""
    scheduler = FakeScheduler(make_seen_node("n", six()))
    assert scheduler.ask(make_pod("x", limit(30, 4), annotations=annotations)).hopeless == {"n": text}


def test_a_wish_is_met_where_it_can_be() -> None:
    """And waits where only its end of a pod would help."""
    scheduler = FakeScheduler(make_seen_node("n", six()))
    banned = ",".join(gpu_uuid(index) for index in range(6) if index != 4)
    pods = [make_pod(name, limit(60, 4), annotations={UNWANTED_GPUS: banned}) for name in "ab"]
    assert scheduler.schedule(pods[0]) == ("n", (4,))
    assert scheduler.ask(pods[1]).failed == {"n": "no GPU that the pod allows with 60 cores free"}


def test_all_that_fit_are_told_best_first() -> None:
    """Or one alone, and the others hear that a better one was chosen."""
    scheduler = FakeScheduler(*(make_plain_node(f"n{number}", 200, 8) for number in range(3)))
    fill(scheduler, "n2", (10, 1))
    found = scheduler.ask(make_pod("x", limit(10, 1)))
    assert (found.fitting, found.failed) == (("n2", "n0", "n1"), {})
    assert found.chosen is not None
    assert found.chosen.node == "n2"
    only = scheduler.ask(make_pod("x", limit(10, 1)), only_best=True)
    assert (only.fitting, only.failed) == (("n2",), {"n0": ELSEWHERE, "n1": ELSEWHERE})


def test_a_name_that_comes_twice_is_answered_once() -> None:
    scheduler = FakeScheduler(make_plain_node("n", 200, 8))
    pod = scheduler.read(make_pod("x", limit(10, 1)))
    assert scheduler.decider.filter(pod, ("n", "n"), only_best=False).fitting == ("n",)


def test_what_containers_leave_one_another_is_counted() -> None:
    """Each alone would fit, together they do not; the numbers say so, and where they hope in vain the evaluators."""
    scheduler = FakeScheduler(make_plain_node("n", 100, 8), make_plain_node("m", 200, 8))
    found = scheduler.ask(make_pod("x", limit(60, 1), limit(60, 1)))
    assert found.fitting == ("m",)
    assert (found.failed, found.hopeless) == ({}, {"n": TOGETHER})
    fill(scheduler, "m", (60, 1))
    assert scheduler.ask(make_pod("x", limit(60, 1), limit(60, 1))).failed == {"m": TOGETHER}
    scheduler.cluster.drop_pod("uid-of-m-0")
    text = "no room for 50 cores and 256 MiB of memory of one GPU (container c3) beside the pod's other containers"
    assert scheduler.ask(make_pod("x", limit(40, 1), limit(40, 1), limit(70, 1), limit(50, 1))).failed["m"] == text
    assert scheduler.decider.judge(scheduler.read(make_pod("x", limit(60, 1))), "n").rank is not None


def test_of_a_large_cluster_no_more_is_asked_than_is_enough() -> None:
    """For pods of several containers, where each node takes a while."""
    scheduler = FakeScheduler(*(make_plain_node(f"n{number:03}", 200, 8) for number in range(103)))
    found = scheduler.ask(make_pod("x", limit(60, 1), limit(60, 1)))
    assert (len(found.fitting), found.fitting[0]) == (100, "n000")
    assert found.failed == dict.fromkeys(("n100", "n101", "n102"), NOT_ASKED)


def test_scores_fall_from_best_to_worst() -> None:
    """Ten for the best, nothing for a node without room or with nothing to give."""
    scheduler = FakeScheduler(*(make_plain_node(f"n{number}", 200, 8) for number in range(5)), SeenNode(name="plain"))
    fill(scheduler, "n3", (10, 1))
    fill(scheduler, "n1", (100, 0), (100, 0))
    pod = scheduler.read(make_pod("x", limit(10, 1)))
    scores = scheduler.decider.prioritize(pod, (*scheduler.names, "gone"))
    assert scores == [("n0", 9), ("n1", 0), ("n2", 8), ("n3", 10), ("n4", 8), ("plain", 0), ("gone", 0)]


def test_an_answer_is_remembered_until_the_node_changes() -> None:
    """And never taken for that to another question, however many there were."""
    scheduler = FakeScheduler(make_plain_node("n", 200, 8))
    for cores in range(1, 100):
        assert scheduler.ask(make_pod("x", limit(cores, 1))).fitting == ("n",)
    fill(scheduler, "n", (100, 0), (100, 0))
    for cores in range(1, 100):
        assert scheduler.ask(make_pod("x", limit(cores, 1))).failed == {"n": f"no GPU with {cores} cores free"}


def test_kinds_of_pods_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number that stood for one never stands for another."""
    monkeypatch.setattr("nodeagent.extender.decide._KINDS_MAX", 2)
    scheduler = FakeScheduler(make_plain_node("n", 200, 8))
    fill(scheduler, "n", (50, 1), (50, 1))
    for cores in (10, 60, 20, 70, 10, 60):
        assert scheduler.ask(make_pod("x", limit(cores, 1))).fitting == (("n",) if cores <= 50 else ())


def test_both_kinds_of_names_in_one_pod_are_refused() -> None:
    """No node could serve it."""
    scheduler = FakeScheduler(make_seen_node("n", six()))
    found = scheduler.ask(make_pod("x", limit(10, 1), {SHARE: "1"}))
    assert "containers c0 and c1 ask for parts of GPUs by different names" in found.hopeless["n"]
    assert MEMORY not in found.hopeless["n"]


@pytest.fixture
def evaluations(monkeypatch: pytest.MonkeyPatch) -> list[PodDemand]:
    asked: list[PodDemand] = []

    def count(space: Space, demand: PodDemand) -> PodPlacement:
        asked.append(demand)
        return place_pod(space, demand)

    monkeypatch.setattr(decide, "place_pod", count)
    return asked


@pytest.mark.parametrize(
    "containers",
    [[limit(200)] * 5, [limit(99, 1)] * 9, [limit(60, 1)] * 9, [limit(10, 100)] * 17],
    ids=["whole GPUs", "cores", "more than half of each", "memory"],
)
def test_what_cannot_fit_together_is_no_question_for_the_evaluators(
    evaluations: list[PodDemand], containers: list[Mapping[str, str]]
) -> None:
    """Each container has room on every node, all of them on none, not even on an empty one."""
    scheduler = FakeScheduler(*(make_seen_node(f"n{number}", eight()) for number in range(20)))
    found = scheduler.ask(make_pod("x", *containers), only_best=True)
    assert found.hopeless == dict.fromkeys(scheduler.names, TOGETHER)
    assert evaluations == []


def test_what_the_evaluators_refused_is_remembered(evaluations: list[PodDemand]) -> None:
    """Where the numbers hope in vain: once for all nodes in the same state, and not again before that changes."""
    scheduler = FakeScheduler(*(make_seen_node(f"n{number}", make_inventory(make_sized(2))) for number in range(50)))
    pod = make_pod("x", limit(40, 1), limit(40, 1), limit(70, 1), limit(50, 1))
    for _ in range(3):
        found = scheduler.ask(pod, only_best=True)
        assert not found.fitting
        assert set(found.failed) == set(scheduler.names)
        assert len(evaluations) == 1
    fill(scheduler, "n7", (10, 1))
    scheduler.ask(pod, only_best=True)
    assert len(evaluations) <= 2


def test_others_have_their_turn_while_many_nodes_are_tried(evaluations: list[PodDemand]) -> None:
    """Nodes that are in ten states are tried in steps, as long as none has room."""
    two, number = make_inventory(make_sized(2)), 2 * STEP
    scheduler = FakeScheduler(*(make_seen_node(f"n{each:03}", two) for each in range(number)))
    for each in range(number):
        fill(scheduler, f"n{each:03}", (each % 10, 1))
    pod = scheduler.read(make_pod("x", limit(40, 1), limit(40, 1), limit(70, 1), limit(40, 1)))
    search = scheduler.decider.search(pod, scheduler.names, only_best=True)
    assert search.go_on() is None
    found = search.go_on()
    assert found is not None
    assert not found.fitting
    assert len(found.failed) == number
    assert len(evaluations) == 10
