"""Why a pod is where it is, or nowhere."""

import msgspec
import pytest

from nodeagent.extender.explain import Story, explain_pod
from nodeagent.extender.messages import NOTHING
from nodeagent.model.scheduling import SeenNode, SeenPod
from tests.support.gpus import gpu_uuid
from tests.support.placement import six
from tests.support.scheduling import FakeScheduler, limit, make_plain_node, make_pod, make_seen_node

INDEX = {"tencent.com/predicate-gpu-idx-0": "3"}


@pytest.fixture
def scheduler() -> FakeScheduler:
    plain = [SeenNode(name=f"plain-{number:02}") for number in range(12)]
    return FakeScheduler(make_seen_node("n", six()), make_plain_node("m", 200, 8), *plain)


def explain(scheduler: FakeScheduler, pod: SeenPod) -> Story:
    return explain_pod(scheduler.cluster, scheduler.decider, scheduler.read(pod))


def test_a_pod_that_waits_is_told_of_every_node(scheduler: FakeScheduler) -> None:
    """The best with the evaluators' reasons, the others counted by theirs."""
    story = explain(scheduler, make_pod("x", limit(30, 10)))
    assert (story.pod, story.state, story.fits) == ("default/x", "waiting: no node has been chosen", 1)
    assert story.asks == {"c0": "30 cores and 2.5 GiB of memory of one GPU"}
    (best,) = story.best
    assert best.node == "n"
    assert f"GPUs       {gpu_uuid(0)}" in best.containers["c0"]
    assert "because    the fullest GPU that still has room" in best.containers["c0"]
    assert (best.gpus[0].free_cores, best.gpus[0].free_memory, best.gpus[0].users) == (100, "32 GiB", 0)
    assert [(reason.text, reason.count, len(reason.nodes)) for reason in story.reasons] == [
        (NOTHING, 12, 10),
        ("2 GPUs with 30 cores free, but none also with 2.5 GiB of memory", 1, 1),
    ]
    assert story.counted is None


def test_a_pod_that_was_promised_something_says_so(scheduler: FakeScheduler) -> None:
    """With the account of that node, in which it counts."""
    pod = make_pod("x", limit(30, 4))
    assert scheduler.schedule(pod)[0] == "m"
    story = explain(scheduler, pod)
    assert story.state == "promised to m, not bound yet"
    assert story.counted is not None
    assert [gpu.free_cores for gpu in story.counted.gpus] == [70, 100]


@pytest.mark.parametrize(
    ("pod", "state"),
    [
        (make_pod("x", limit(30, 4), node="n", annotations=INDEX), f"bound to n, on {gpu_uuid(3)}"),
        (
            make_pod("x", limit(30, 4), node="n"),
            "bound to n; which GPUs it has nobody says, so it is counted where the node would put it",
        ),
        (
            make_pod("x", limit(30, 4), node="plain-01"),
            "bound to plain-01, which gives out no parts of GPUs or is not known",
        ),
    ],
)
def test_a_pod_that_is_bound_says_where(scheduler: FakeScheduler, pod: SeenPod, state: str) -> None:
    scheduler.cluster.note_pod(pod, 0.0)
    story = explain(scheduler, pod)
    assert story.state == state
    assert story.counted is not None
    assert len(story.counted.gpus) == (0 if pod.node == "plain-01" else 6)


def test_a_story_has_a_json_form(scheduler: FakeScheduler) -> None:
    story = explain(scheduler, make_pod("x", limit(30, 10)))
    assert msgspec.json.decode(msgspec.json.encode(story), type=Story) == story
