"""Ten thousand odd questions: each gets an answer or the one error, and none a node that does not fit."""

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.extender.errors import QuestionMalformed
from nodeagent.extender.place_pod import place_pod
from nodeagent.extender.wire import parse_question, render_all, render_filtered, render_scores
from nodeagent.model.scheduling import SeenNode
from tests.support.examples import examples
from tests.support.placement import eight, six
from tests.support.scheduling import FakeScheduler, make_plain_node, make_seen_node
from tests.unit.extender.test_wire import POD

ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1, 30, 100, 101, 200, 10**18, 1.5, "", "0", "1", "30", "99", "100", "1k", "1e3", "-5", "NaN",
    "9" * 400, "\u0000", "x" * 5000, [], {}, [[]], {"a": None}, ["n"], [None], "tencent.com/vcuda-core", "Always",
)  # fmt: skip
KEYS = (
    "Pod", "NodeNames", "Nodes", "metadata", "uid", "name", "namespace", "annotations", "spec", "containers", "limits",
    "initContainers", "resources", "items", "restartPolicy", "nodeName", "phase", "status", "tencent.com/vcuda-core",
    "tencent.com/vcuda-memory", "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/use-gputype",
    "tencent.com/predicate-gpu-idx-0", "tencent.com/predicate-node", "hami.io/node-scheduler-policy",
)  # fmt: skip
FUZZED = 10_000


def make_question(chance: Random) -> Any:
    limits: dict[str, Any] = {
        "tencent.com/vcuda-core": str(chance.choice((10, 50, 100, 200, 800, 150))),
        "tencent.com/vcuda-memory": str(chance.choice((1, 8, 100, 1000))),
    }
    pod = json.loads(json.dumps(POD))
    pod["spec"]["containers"][0]["resources"]["limits"] = limits
    names = ["n", "m", "plain", "gone"]
    question = {"Pod": pod, "NodeNames": names, "Nodes": None}
    if chance.random() < 0.3:
        question |= {"NodeNames": None, "Nodes": {"items": [{"metadata": {"name": name}} for name in names]}}
    return question


def damage(value: Any, chance: Random) -> Any:
    """Somewhere in it something else stands."""
    if not isinstance(value, dict | list) or not value or chance.random() < 0.15:
        return chance.choice(ODD)
    if isinstance(value, list):
        place = chance.randrange(len(value))
        return [*value[:place], damage(value[place], chance), *value[place + 1 :]]
    key = chance.choice(list(value))
    if chance.random() < 0.2:
        return value | {chance.choice(KEYS): chance.choice(ODD)}
    return value | {key: damage(value[key], chance)}


def make_scheduler() -> FakeScheduler:
    nodes = (make_seen_node("n", eight()), make_seen_node("m", six()), make_plain_node("p", 400, 64))
    return FakeScheduler(*nodes, SeenNode(name="plain"))


def answer(scheduler: FakeScheduler, body: bytes) -> bool:
    """Whether it was a question; whatever was answered is held against the evaluators."""
    try:
        asked = parse_question(body, most_nodes=100)
    except QuestionMalformed:
        return False
    pod = scheduler.cluster.read_pod(asked.pod)
    if pod is None:
        assert json.loads(render_all(asked))["Error"] == ""
        return True
    found = scheduler.decider.filter(pod, asked.names, only_best=True)
    assert {*found.fitting, *found.failed, *found.hopeless} == set(asked.names)
    assert all(found.failed.values())
    assert all(found.hopeless.values())
    json.loads(render_filtered(asked, found))
    for _, score in scheduler.decider.prioritize(pod, asked.names):
        assert 0 <= score <= 10
    json.loads(render_scores(scheduler.decider.prioritize(pod, asked.names)))
    for name in found.fitting:
        account = scheduler.cluster.find_space(name)
        assert account is not None
        assert pod.demand is not None
        placed = place_pod(account.space, pod.demand)
        assert placed.fits
        assert not any(room.is_overcommitted for room in account.space.occupy(placed.parts).rooms)
    scheduler.cluster.note_pod(asked.pod, 0.0)
    return True


@pytest.mark.long
def test_damaged_questions_are_answered_or_refused() -> None:
    """Drawn from a seed; many of them are still questions, or the test would show little."""
    chance = Random(23)
    scheduler = make_scheduler()
    asked, answered = examples(FUZZED), 0
    for number in range(asked):
        question = make_question(chance)
        for _ in range(chance.randrange(4)):
            question = damage(question, chance)
        answered += answer(scheduler, json.dumps(question).encode())
        if number % 100 == 0:
            scheduler = make_scheduler()
    assert asked // 4 < answered < asked


@settings(max_examples=examples(200))
@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_any_bytes_are_answered_or_refused(body: bytes) -> None:
    """Whoever can reach the port can send them."""
    answer(make_scheduler(), body)
