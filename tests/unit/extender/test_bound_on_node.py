"""Bindings that nodes publish count in place of choices, whichever of both watches is late."""

import pytest
from msgspec.structs import replace

from nodeagent.extender.cluster import Cluster
from nodeagent.rules.fractions.bound import BOUND_ANNOTATION
from tests.support.fractions import part
from tests.support.gpus import gpu_uuid
from tests.support.placement import six
from tests.support.scheduling import bind_pod, limit, make_pod, make_seen_node
from tests.unit.extender.counting import HALF, UUID, choose, make_cluster, promise, used


@pytest.fixture
def cluster() -> Cluster:
    return make_cluster()


def test_what_the_node_says_of_a_container_counts_whatever_its_pod_says(cluster: Cluster) -> None:
    """The pod was chosen GPU 0, was given GPU 2, and has been set to 60 since; another has not started yet."""
    pod, later = (make_pod(name, HALF, node="n", annotations=choose("n", 0)) for name in "ab")
    for each in (pod, later):
        cluster.note_pod(each, 0.0)
    assert used(cluster) == {0: 100}
    cluster.note_node(make_seen_node("n", six(), bound=[bind_pod(pod, "c0", part(2, 60, 1))]))
    assert used(cluster) == {0: 50, 2: 60}
    cluster.note_node(make_seen_node("n", six(), bound=[bind_pod(pod, "c0", part(2, 40, 1))]))
    assert used(cluster) == {0: 50, 2: 40}


def test_a_pod_counts_once_however_the_two_watches_are_late(cluster: Cluster) -> None:
    """What the node says of pods that are not known there, or have finished, is in nobody's way."""
    pod = make_pod("a", HALF)
    bound = make_seen_node("n", six(), bound=[bind_pod(pod, "c0", part(2, 50, 1))])
    cluster.note_node(bound)
    assert used(cluster) == {}
    cluster.note_pod(pod, 0.0)
    promise(cluster, pod, "n", {})
    assert used(cluster) == {2: 50}
    cluster.note_pod(make_pod("a", HALF, node="n", annotations=choose("n", 0)), 0.0)
    assert used(cluster) == {2: 50}
    cluster.note_pod(make_pod("a", HALF, node="n", is_finished=True), 0.0)
    assert used(cluster) == {}


def test_of_a_pod_that_has_started_in_part_the_rest_counts_by_its_choice(cluster: Cluster) -> None:
    """Or, without one, by where it would be put; what init containers had is over once all the others run."""
    annotations = choose("n", 1, 1) | {f"{UUID}init-0": gpu_uuid(3)}
    pod = make_pod("a", HALF, HALF, init=[limit(70, 4)], node="n", annotations=annotations)
    cluster.note_pod(pod, 0.0)
    assert used(cluster) == {1: 100, 3: 70}
    one, two = bind_pod(pod, "c0", part(2, 50, 1)), bind_pod(pod, "c1", part(4, 50, 1))
    cluster.note_node(make_seen_node("n", six(), bound=[one]))
    assert used(cluster) == {1: 50, 2: 50, 3: 70}
    cluster.note_node(make_seen_node("n", six(), bound=[one, two]))
    assert used(cluster) == {2: 50, 4: 50}
    cluster.note_pod(make_pod("a", HALF, HALF, node="n"), 0.0)
    cluster.note_node(make_seen_node("n", six(), bound=[one]))
    assert used(cluster)[2] == 50
    assert sum(used(cluster).values()) == 100


def test_a_promise_stands_until_all_of_the_pod_has_started(cluster: Cluster) -> None:
    """What is promised to a pod as a whole cannot be told apart by container."""
    pod = make_pod("a", HALF, HALF)
    cluster.note_pod(pod, 0.0)
    promise(cluster, pod, "n", {})
    assert used(cluster) == {0: 100}
    cluster.note_node(make_seen_node("n", six(), bound=[bind_pod(pod, "c0", part(2, 50, 1))]))
    assert used(cluster) == {0: 100}


def test_a_node_whose_bindings_make_no_sense_says_so(cluster: Cluster) -> None:
    """As of its GPUs: nothing is sent there by half of what it says."""
    node = make_seen_node("n", six())
    cluster.note_node(replace(node, annotations={**node.annotations, BOUND_ANNOTATION: "{"}))
    assert cluster.find_space("n") is None
    assert BOUND_ANNOTATION in cluster.nodes["n"].problem
