"""GPUs whose parts MPS holds are for pods that MPS holds, the others for all others: the scheduler is told the same."""

from collections.abc import Mapping

import pytest

from nodeagent.config.sections.fractions import EnforcementName
from nodeagent.extender.explain import explain_pod
from nodeagent.model.scheduling import SeenNode
from nodeagent.rules.fractions.published import ANNOTATION
from nodeagent.rules.fractions.selection import UNWANTED_GPUS
from tests.support.gpus import gpu_uuid, make_inventory
from tests.support.placement import make_sized
from tests.support.scheduling import SHARE, FakeScheduler, limit, make_pod, publish

KEY = "nodeagent.io/gpu-enforcement"
LIBRARY, MPS = {KEY: "library"}, {KEY: "mps"}


def node(
    name: str = "n",
    gpus: int = 2,
    *,
    enforcement: EnforcementName | None = "mps",
    mps_clients: int | None = 48,
    **other: object,
) -> SeenNode:
    inventory = make_inventory(make_sized(gpus))
    text = publish(inventory, enforcement=enforcement, mps_clients=mps_clients, **other)  # type: ignore[arg-type]
    return SeenNode(name=name, annotations={ANNOTATION: text})


def on(index: int) -> Mapping[str, str]:
    return {"tencent.com/predicate-gpu-idx-0": str(index)}


def test_a_pod_that_mps_is_not_to_hold_goes_past_the_gpus_that_it_holds() -> None:
    """To another GPU, to another node, and nowhere where there is none, with the reason."""
    scheduler = FakeScheduler(node())
    scheduler.cluster.note_pod(make_pod("held", limit(30, 4), node="n", annotations=on(0)), 0.0)
    assert scheduler.schedule(make_pod("same", limit(30, 4))) == ("n", (0,))
    assert scheduler.schedule(make_pod("other", limit(30, 4), annotations=LIBRARY)) == ("n", (1,))
    scheduler.cluster.note_pod(make_pod("large", limit(60, 4), node="n", annotations={**on(1), **LIBRARY}), 0.0)
    found = scheduler.ask(make_pod("x", limit(30, 4), annotations=LIBRARY))
    assert found.failed == {"n": "no GPU outside of MPS with 30 cores free"}
    scheduler.cluster.note_node(node("m", enforcement="advise", mps_clients=None))
    assert scheduler.schedule(make_pod("x", limit(30, 4), annotations=LIBRARY)) == ("m", (0,))


def test_a_pod_that_mps_is_to_hold_goes_past_the_gpus_of_others() -> None:
    """Of parts and of whole GPUs; both kinds of others end by themselves, so it is not for good."""
    scheduler = FakeScheduler(node(enforcement="library"))
    scheduler.cluster.note_pod(make_pod("other", limit(30, 4), node="n", annotations=on(0)), 0.0)
    scheduler.cluster.note_pod(make_pod("whole", limit(100), node="n", annotations={**on(1), **MPS}), 0.0)
    found = scheduler.ask(make_pod("x", limit(30, 4), annotations=MPS))
    assert (found.failed, found.hopeless) == ({"n": "no GPU open to MPS with 30 cores free"}, {})
    assert scheduler.schedule(make_pod("y", limit(30, 4), annotations=LIBRARY)) == ("n", (0,))


def test_mps_holds_so_many_and_no_more() -> None:
    """None on GPUs that came before Volta, which is for good."""
    scheduler = FakeScheduler(node(gpus=1, mps_clients=2), node("old", mps_clients=0))
    for name in "ab":
        assert scheduler.schedule(make_pod(name, limit(10, 1))) == ("n", (0,))
    found = scheduler.ask(make_pod("c", limit(10, 1)))
    assert found.failed == {"n": "no GPU open to MPS with 10 cores free"}
    assert found.hopeless == {"old": "no GPU open to MPS with 10 cores free"}


def test_whole_gpus_have_no_daemon() -> None:
    """Nothing has to hold a pod to them, whatever it says."""
    scheduler = FakeScheduler(node(mps_clients=0))
    assert scheduler.schedule(make_pod("x", limit(100), annotations={KEY: "prayer"})) == ("n", (0,))


def test_mps_is_refused_where_it_can_never_be() -> None:
    """Without anybody who looks after daemons, and for a container with parts of several GPUs."""
    scheduler = FakeScheduler(node(enforcement="library", mps_clients=None))
    text = f"nobody looks after MPS daemons on this node, and the pod asks for mps ({KEY})"
    assert scheduler.ask(make_pod("x", limit(30, 4), annotations=MPS)).hopeless == {"n": text}
    several = make_pod("x", {SHARE: "2", "nvidia.com/gpumem": "1000"})
    scheduler = FakeScheduler(node(profile="hami"))
    found = scheduler.ask(several)
    assert found.hopeless["n"].startswith(f"{KEY}: parts of 2 GPUs are asked for, and MPS holds a process to its part")
    scheduler = FakeScheduler(node(enforcement="library", profile="hami"))
    assert scheduler.ask(several).fitting == ("n",)


def test_of_a_node_that_does_not_tell_nothing_is_judged() -> None:
    """An agent of before, or another one: it says itself what it refuses."""
    scheduler = FakeScheduler(node(enforcement=None, mps_clients=None))
    scheduler.cluster.note_pod(make_pod("other", limit(30, 4), node="n", annotations=on(0)), 0.0)
    assert scheduler.schedule(make_pod("x", limit(30, 4), annotations=MPS)) == ("n", (0,))


def test_a_word_that_means_nothing_is_refused_and_what_its_pod_has_counts() -> None:
    """Annotations may be changed while a pod runs."""
    scheduler = FakeScheduler(node(gpus=1))
    wrong = make_pod("x", limit(60, 4), annotations={KEY: "prayer"})
    reason = f"{KEY}: annotation with value 'prayer'; give one of advise, library, mps"
    assert scheduler.ask(wrong).hopeless == {"n": reason}
    assert scheduler.decider.prioritize(scheduler.read(wrong), ("n",)) == [("n", 0)]
    running = make_pod("y", limit(60, 4), node="n", annotations={KEY: "prayer"})
    scheduler.cluster.note_pod(running, 0.0)
    assert scheduler.ask(make_pod("z", limit(60, 4))).failed == {"n": "no GPU with 60 cores free"}


@pytest.mark.parametrize(("annotations", "index"), [({}, 0), (LIBRARY, 1)])
def test_a_pod_of_which_nobody_says_where_it_is_is_counted_where_its_node_puts_it(
    annotations: Mapping[str, str], index: int
) -> None:
    """Beside those that are held as it is."""
    scheduler = FakeScheduler(node())
    scheduler.cluster.note_pod(make_pod("held", limit(30, 4), node="n", annotations=on(0)), 0.0)
    scheduler.cluster.note_pod(make_pod("x", limit(30, 4), node="n", annotations=annotations), 0.0)
    account = scheduler.cluster.find_space("n")
    assert account is not None
    assert [part.gpu for part in account.taken["uid-of-x"]] == [gpu_uuid(index)]


def test_wishes_count_among_the_gpus_that_mps_leaves() -> None:
    scheduler = FakeScheduler(node())
    scheduler.cluster.note_pod(make_pod("held", limit(30, 4), node="n", annotations=on(0)), 0.0)
    pod = make_pod("x", limit(30, 4), annotations={**LIBRARY, UNWANTED_GPUS: gpu_uuid(1)})
    assert scheduler.ask(pod).failed == {"n": "no GPU outside of MPS that the pod allows with 30 cores free"}


def test_the_story_names_the_gpus_that_mps_holds() -> None:
    scheduler = FakeScheduler(node())
    scheduler.cluster.note_pod(make_pod("held", limit(30, 4), node="n", annotations=on(0)), 0.0)
    pod = scheduler.read(make_pod("x", limit(30, 4), annotations=LIBRARY))
    (best,) = explain_pod(scheduler.cluster, scheduler.decider, pod).best
    assert "its parts are held by MPS" in "\n".join(best.containers["c0"])
