"""Laws of the index: whatever happens in whatever order, it counts what a look at everything anew would count."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.extender.cluster import Cluster
from nodeagent.extender.node_space import NodeSpace, Tenant
from nodeagent.model.scheduling import SeenPod
from tests.support.examples import examples
from tests.support.placement import eight, six
from tests.support.scheduling import PROFILES, FakeScheduler, limit, make_plain_node, make_pod, make_seen_node

NODES = (make_seen_node("n", six()), make_seen_node("m", eight()), make_plain_node("p", 200, 64))
OTHERS = (make_seen_node("n", eight()), make_plain_node("m", 400, 128), make_plain_node("p", 0, 0))
NAMES = tuple(node.name for node in NODES)
PODS = 6
ASSUME_SECONDS = 10.0


def count_anew(cluster: Cluster, without: str) -> dict[str, NodeSpace | None]:
    """Each node's account, from the pods and promises alone."""
    tenants: dict[str, dict[str, Tenant]] = {name: {} for name in NAMES}
    for uid in (cluster.pods.keys() | cluster.holds.keys()) - {without}:
        hold, pod = cluster.holds.get(uid), cluster.pods.get(uid)
        if hold is not None:
            tenants.setdefault(hold.node, {})[uid] = Tenant(hold.pod, hold.parts)
        elif pod is not None and pod.node:
            tenants.setdefault(pod.node, {})[uid] = Tenant(pod)
    found: dict[str, NodeSpace | None] = {}
    for name in NAMES:
        entry = cluster.nodes.get(name)
        published = entry.published if entry is not None else None
        found[name] = None if published is None else NodeSpace(PROFILES, published, tenants[name])
    return found


def check(cluster: Cluster, without: str = "") -> None:
    for name, anew in count_anew(cluster, without).items():
        account = cluster.find_space(name)
        assert (account is None) == (anew is None)
        if account is not None and anew is not None:
            assert account.space == anew.space
            assert {uid: set(parts) for uid, parts in account.taken.items()} == {
                uid: set(parts) for uid, parts in anew.taken.items()
            }
            assert account.plain[0].summary[:5] == anew.plain[0].summary[:5]


def draw_pod(chance: Random) -> SeenPod:
    name = f"p{chance.randrange(PODS)}"
    annotations = {}
    if chance.random() < 0.5:
        annotations = {
            "tencent.com/predicate-node": chance.choice((*NAMES, "gone")),
            "tencent.com/predicate-time": str(chance.randrange(3)),
            "tencent.com/predicate-gpu-idx-0": str(chance.randrange(9)),
        }
    limits = chance.choice((limit(30, 4), limit(100), limit(200), limit(150), {"cpu": "1"}))
    node = chance.choice(("", "", *NAMES, "gone"))
    is_finished = chance.random() < 0.1
    return make_pod(name, limits, node=node, annotations=annotations, is_finished=is_finished)


def step(scheduler: FakeScheduler, chance: Random) -> None:
    cluster = scheduler.cluster
    scheduler.now += chance.choice((0.0, 0.1, 5.0))
    uid = f"uid-of-p{chance.randrange(PODS)}"
    what = chance.randrange(10)
    if what < 4:
        cluster.note_pod(draw_pod(chance), scheduler.now)
    elif what == 4:
        cluster.drop_pod(uid)
    elif what == 5:
        cluster.note_node(chance.choice(NODES + OTHERS))
    elif what == 6:
        cluster.drop_node(chance.choice(NAMES))
    elif what == 7:
        cluster.release(uid)
        aside = f"uid-of-p{chance.randrange(PODS)}"
        with cluster.aside(aside):
            check(cluster, aside)
    elif what == 8:
        cluster.expire(scheduler.now)
        cluster.keep_pods([f"uid-of-p{number}" for number in range(PODS) if chance.random() < 0.9])
    else:
        pod = cluster.read_pod(draw_pod(chance))
        if pod is not None and pod.demand is not None and not pod.node:
            found = scheduler.decider.filter(pod, NAMES, only_best=True)
            if found.chosen is not None:
                written = chance.choice((None, {}, {"tencent.com/predicate-node": found.chosen.node}))
                until = scheduler.now + ASSUME_SECONDS
                cluster.assume(pod, found.chosen.node, found.chosen.placement.parts, written, until)


@pytest.mark.long
@settings(max_examples=examples(300))
@given(st.integers(0, 2**32), st.integers(30, 90))
def test_the_index_counts_what_there_is(seed: int, steps: int) -> None:
    """After every step; nothing that was counted before is left over."""
    chance = Random(seed)
    scheduler = FakeScheduler(*NODES, assume_seconds=ASSUME_SECONDS)
    for _ in range(steps):
        step(scheduler, chance)
        check(scheduler.cluster)
    scheduler.cluster.expire(1e9)
    scheduler.cluster.keep_pods(())
    assert not scheduler.cluster.holds
    for node in NODES:
        scheduler.cluster.note_node(node)
        account = scheduler.cluster.find_space(node.name)
        assert account is not None
        assert account.space == account.published.space
