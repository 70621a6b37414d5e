"""What counts where: bound, promised, too old, finished, gone, and come back."""

import pytest
from msgspec.structs import replace

from nodeagent.extender.cluster import Cluster
from nodeagent.model.scheduling import SeenNode
from nodeagent.rules.fractions.published import ANNOTATION
from tests.support.gpus import gpu_uuid
from tests.support.placement import eight, six
from tests.support.scheduling import (
    PROFILES,
    SHARE,
    FakeScheduler,
    limit,
    make_plain_node,
    make_pod,
    make_seen_node,
    publish,
)
from tests.unit.extender.counting import HALF, INDEX, UUID, choose, make_cluster, promise, read, used


@pytest.fixture
def cluster() -> Cluster:
    return make_cluster()


def test_a_bound_pod_counts_where_its_annotations_say(cluster: Cluster) -> None:
    """By index or by UUID, each container for itself."""
    cluster.note_pod(make_pod("a", HALF, limit(20, 1), node="n", annotations=choose("n", 3, 1)), 0.0)
    cluster.note_pod(make_pod("b", HALF, node="n", annotations={f"{UUID}0": gpu_uuid(5)}), 0.0)
    assert used(cluster) == {1: 20, 3: 50, 5: 50}
    assert used(cluster, "m") == {}


@pytest.mark.parametrize(
    "annotations",
    [{}, choose("m", 3), {f"{INDEX}0": "9"}, {f"{INDEX}0": "1,2"}, {f"{INDEX}1": "3"}],
    ids=["none", "for another node", "no such GPU", "too many", "of another container"],
)
def test_a_bound_pod_that_nobody_tells_of_counts_where_the_node_would_put_it(
    cluster: Cluster, annotations: dict[str, str]
) -> None:
    cluster.note_pod(make_pod("known", limit(10, 1), node="n", annotations=choose("n", 2)), 0.0)
    cluster.note_pod(make_pod("a", HALF, node="n", annotations=annotations), 0.0)
    assert used(cluster) == {2: 60}
    account = cluster.find_space("n")
    assert account is not None
    assert account.guessed == {"uid-of-a"}
    cluster.note_pod(make_pod("a", HALF, node="n", annotations={f"{INDEX}0": "4"}), 0.0)
    assert used(cluster) == {2: 10, 4: 50}


def test_guesses_do_not_depend_on_the_order_of_the_list(cluster: Cluster) -> None:
    """But on who was created first."""
    late, early = (
        make_pod("a", limit(60, 4), node="n", created="2026-01-02T00:00:00Z"),
        make_pod("b", limit(80, 4), node="n", created="2026-01-01T00:00:00Z"),
    )
    for pods in ((late, early), (early, late)):
        for pod in pods:
            cluster.note_pod(pod, 0.0)
        assert used(cluster) == {0: 80, 1: 60}
        cluster.keep_pods(())
    assert used(cluster) == {}


def test_a_pod_that_fits_nowhere_is_not_counted_twice(cluster: Cluster) -> None:
    """What the node gave it is not known, and no GPU is called over-committed for it."""
    for name in "ab":
        cluster.note_pod(make_pod(name, limit(600), node="n"), 0.0)
    account = cluster.find_space("n")
    assert account is not None
    assert [room.users for room in account.space.rooms] == [1] * 6


def test_two_choices_for_one_gpu_are_both_counted(cluster: Cluster) -> None:
    """It is over-committed then, and nothing more goes there."""
    for name in "ab":
        cluster.note_pod(make_pod(name, limit(80, 4), node="n", annotations=choose("n", 0)), 0.0)
    account = cluster.find_space("n")
    assert account is not None
    assert account.space.rooms[0].is_overcommitted


def test_a_finished_pod_is_free_at_once(cluster: Cluster) -> None:
    """Its object may stay for days."""
    pod = make_pod("a", HALF, node="n", annotations=choose("n", 3))
    cluster.note_pod(pod, 0.0)
    cluster.note_pod(replace(pod, is_finished=True), 0.0)
    assert (used(cluster), cluster.find_pod("default/a")) == ({}, None)


def test_a_pod_without_a_part_of_a_gpu_is_not_kept(cluster: Cluster) -> None:
    """Nor one that asks for what cannot be."""
    cluster.note_pod(make_pod("a", {"cpu": "1"}, node="n"), 0.0)
    cluster.note_pod(make_pod("b", limit(150), node="n"), 0.0)
    assert cluster.pods == {}
    assert cluster.read_pod(make_pod("a", {"cpu": "1"})) is None


def test_a_chosen_pod_counts_until_its_choice_is_too_old(cluster: Cluster) -> None:
    """From when it was first seen here, by this clock; what is seen again is not younger."""
    pod = make_pod("a", HALF, annotations=choose("n", 3))
    cluster.note_pod(pod, 10.0)
    cluster.note_pod(replace(pod, created="later"), 50.0)
    cluster.expire(69.9)
    assert used(cluster) == {3: 50}
    cluster.expire(70.0)
    assert (used(cluster), cluster.expired) == ({}, 1)
    cluster.note_pod(replace(pod, created="again"), 71.0)
    assert used(cluster) == {}


def test_a_choice_that_is_made_anew_counts_anew(cluster: Cluster) -> None:
    """As when binding failed and another replica chose again."""
    cluster.note_pod(make_pod("a", HALF, annotations=choose("n", 3)), 0.0)
    cluster.note_pod(make_pod("a", HALF, annotations=choose("m", 1, time="2")), 50.0)
    assert (used(cluster), used(cluster, "m")) == ({}, {1: 50})
    cluster.expire(100.0)
    assert used(cluster, "m") == {1: 50}
    cluster.note_pod(make_pod("a", HALF), 100.0)
    assert used(cluster, "m") == {}


def test_a_choice_ends_with_the_binding(cluster: Cluster) -> None:
    """Then it is the pod itself that counts, for as long as it runs, and where it really is."""
    cluster.note_pod(make_pod("a", HALF, annotations=choose("n", 3)), 0.0)
    cluster.note_pod(make_pod("a", HALF, node="n", annotations=choose("n", 3)), 1.0)
    cluster.expire(1000.0)
    assert (used(cluster), cluster.expired) == ({3: 50}, 0)
    cluster.note_pod(make_pod("a", HALF, node="m", annotations=choose("n", 3)), 2.0)
    assert (used(cluster), used(cluster, "m")) == ({}, {0: 50})


def test_a_promise_outlives_older_news(cluster: Cluster) -> None:
    """The API server tells of the annotations later than they are written."""
    old, new = choose("m", 1), choose("n", 0, time="2")
    pod = make_pod("a", HALF, annotations=old)
    cluster.note_pod(pod, 0.0)
    promise(cluster, pod, "n", new, 5.0)
    assert (used(cluster), used(cluster, "m")) == ({0: 50}, {})
    cluster.note_pod(replace(pod, created="older"), 6.0)
    assert (used(cluster), used(cluster, "m")) == ({0: 50}, {})
    cluster.note_pod(replace(pod, annotations=new), 7.0)
    assert used(cluster) == {0: 50}
    cluster.note_pod(replace(pod, annotations=new, created="newer"), 8.0)
    assert used(cluster) == {0: 50}
    cluster.expire(65.0)
    assert used(cluster) == {}


def test_a_promise_that_was_confirmed_follows_the_annotations(cluster: Cluster) -> None:
    """Another replica may have chosen again since."""
    new = choose("n", 0, time="2")
    pod = make_pod("a", HALF)
    promise(cluster, pod, "n", new)
    cluster.note_pod(replace(pod, annotations=new), 1.0)
    cluster.note_pod(replace(pod, annotations=choose("m", 4, time="3")), 2.0)
    assert (used(cluster), used(cluster, "m")) == ({}, {4: 50})


def test_a_pod_that_is_deleted_while_it_runs_counts_for_a_while() -> None:
    """Its containers do not end with its object. That is no choice that came to nothing, and its name is another's."""
    cluster = Cluster(PROFILES, assume_seconds=60.0, linger_seconds=30.0)
    cluster.note_node(make_seen_node("n", six()))
    running = make_pod("a", HALF, node="n", annotations=choose("n", 3))
    cluster.note_pod(running, 0.0)
    cluster.note_pod(make_pod("b", HALF, annotations=choose("n", 3)), 0.0)
    cluster.drop_pod("uid-of-b", 5.0)
    cluster.drop_pod("uid-of-a", 5.0)
    assert (used(cluster), cluster.find_pod("default/a")) == ({3: 50}, None)
    cluster.note_pod(replace(running, uid="uid-of-second", annotations=choose("n", 4)), 6.0)
    assert used(cluster) == {3: 50, 4: 50}
    cluster.expire(34.9)
    cluster.keep_pods((), 34.9)
    assert used(cluster) == {3: 50, 4: 50}
    cluster.expire(35.0)
    assert used(cluster) == {4: 50}
    cluster.expire(64.9)
    assert (used(cluster), cluster.holds, cluster.expired) == ({}, {}, 0)


def test_a_pod_that_finished_before_it_was_deleted_counts_no_more() -> None:
    cluster = Cluster(PROFILES, assume_seconds=60.0, linger_seconds=30.0)
    cluster.note_node(make_seen_node("n", six()))
    pod = make_pod("a", HALF, node="n", annotations=choose("n", 3))
    cluster.note_pod(pod, 0.0)
    cluster.note_pod(replace(pod, is_finished=True), 0.0)
    cluster.drop_pod("uid-of-a", 1.0)
    assert used(cluster) == {}


def test_a_promise_that_nothing_is_written_of_lasts_until_the_pod_is_bound(cluster: Cluster) -> None:
    """As for filter without a choice, which the scheduler makes itself."""
    pod = make_pod("a", HALF)
    promise(cluster, pod, "n", None)
    cluster.note_pod(pod, 1.0)
    assert used(cluster) == {0: 50}
    cluster.note_pod(replace(pod, node="m"), 2.0)
    assert (used(cluster), used(cluster, "m")) == ({}, {0: 50})


def test_a_promise_can_be_taken_back(cluster: Cluster) -> None:
    """Of a pod that is asked about again, or that is gone; one that is bound is not touched by it."""
    pod = make_pod("a", HALF)
    promise(cluster, pod, "n", {})
    cluster.release("uid-of-a")
    cluster.release("uid-of-a")
    assert used(cluster) == {}
    cluster.note_pod(replace(pod, node="n"), 2.0)
    cluster.release("uid-of-a")
    assert used(cluster) == {0: 50}
    promise(cluster, make_pod("b", HALF), "n", {})
    cluster.drop_pod("uid-of-b")
    assert used(cluster) == {0: 50}


def test_what_is_asked_about_is_seen_without_itself(cluster: Cluster) -> None:
    """A pod that is annotated and not bound is judged again, as if nothing had been chosen."""
    pod = make_pod("a", limit(600), annotations=choose("n", 0))
    promise(cluster, pod, "n", {})
    scheduler = FakeScheduler()
    scheduler.cluster, scheduler.decider = cluster, type(scheduler.decider)(cluster, "pack")
    assert scheduler.ask(pod).fitting == ("m",)
    cluster.release(pod.uid)
    assert scheduler.ask(pod).fitting == ("m", "n")


def test_a_node_that_comes_back_has_its_pods(cluster: Cluster) -> None:
    """They were there all the time, and so were promises."""
    cluster.note_pod(make_pod("a", HALF, node="n", annotations=choose("n", 3)), 0.0)
    cluster.keep_nodes(("m",))
    assert cluster.find_space("n") is None
    cluster.note_pod(make_pod("b", HALF, node="n", annotations=choose("n", 4)), 0.0)
    cluster.note_node(make_seen_node("n", six()))
    assert used(cluster) == {3: 50, 4: 50}


def test_a_node_that_says_the_same_is_not_counted_anew(cluster: Cluster) -> None:
    """Kubelets write their nodes every few minutes; what an account remembers is worth keeping."""
    account = cluster.find_space("n")
    cluster.note_node(make_seen_node("n", six()))
    assert cluster.find_space("n") is account
    cluster.note_node(make_seen_node("n", eight()))
    assert cluster.find_space("n") is not account


def test_a_node_may_lose_and_find_its_words(cluster: Cluster) -> None:
    """What makes no sense is no account at all, and no pod's end."""
    cluster.note_node(SeenNode(name="n", annotations={ANNOTATION: "{}"}))
    assert cluster.find_space("n") is None
    assert cluster.nodes["n"].problem
    cluster.note_node(SeenNode(name="n", annotations={ANNOTATION: publish(six())}))
    assert cluster.find_space("n") is not None
    assert not cluster.nodes["n"].problem


def test_nodes_and_pods_of_one_kind_share_what_they_weigh(cluster: Cluster) -> None:
    """Five thousand nodes have a handful of trees."""
    first, second = (cluster.nodes[name].published for name in "nm")
    assert first is not None
    assert second is not None
    assert first.space.tree is second.space.tree
    pods = [read(cluster, make_pod(name, HALF)) for name in "ab"]
    assert pods[0].demand is pods[1].demand


def test_what_is_shared_is_bounded(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods may ask for whatever they like."""
    monkeypatch.setattr("nodeagent.extender.cluster._POOLED_MAX", 1)
    for cores in (1, 2, 3):
        assert read(cluster, make_pod("a", limit(cores, 1))).demand is not None


def test_a_pod_of_the_same_name_is_another(cluster: Cluster) -> None:
    """The end of the first does not hide the second."""
    first = make_pod("a", HALF, node="n")
    second = replace(first, uid="uid-of-second")
    cluster.note_pod(first, 0.0)
    cluster.note_pod(second, 0.0)
    cluster.drop_pod(first.uid)
    found = cluster.find_pod("default/a")
    assert found is not None
    assert found.uid == "uid-of-second"


def test_whole_devices_of_another_kind_are_left_alone() -> None:
    """Where nvidia.com/gpu means whole GPUs, a pod that asks for one is none of ours."""
    cluster = Cluster(replace(PROFILES, shares=None), assume_seconds=60.0)
    assert cluster.read_pod(make_pod("a", {SHARE: "1"})) is None
    cluster.note_node(make_plain_node("n", 200, 8))
    assert cluster.find_space("n") is not None
    shares = Cluster(replace(PROFILES, cores=None), assume_seconds=60.0)
    assert shares.read_pod(make_pod("a", HALF)) is None
    assert shares.read_pod(make_pod("a", {SHARE: "1"})) is not None


def test_a_share_counts_by_its_annotation(cluster: Cluster) -> None:
    """Of HAMi's names, init containers first."""
    cluster.note_node(make_seen_node("h", six(), profile="hami"))
    text = f"{gpu_uuid(1)},NVIDIA,1000,30:;{gpu_uuid(2)},NVIDIA,1000,30:;"
    limits = {SHARE: "1", "nvidia.com/gpumem": "1000", "nvidia.com/gpucores": "30"}
    annotations = {"hami.io/vgpu-devices-allocated": text, "hami.io/vgpu-node": "h"}
    cluster.note_pod(make_pod("a", limits, node="h", init=[limits], annotations=annotations), 0.0)
    assert used(cluster, "h") == {1: 30, 2: 30}
    cluster.note_pod(make_pod("b", limits, node="n", annotations=annotations), 0.0)
    assert used(cluster) == {0: 30}


def test_what_anybody_may_write_is_kept_in_bounds(cluster: Cluster) -> None:
    """Annotations may have a quarter of a megabyte, on every pod."""
    many = {f"{INDEX}{number}": "0" for number in range(5000)}
    pod = read(cluster, make_pod("a", HALF, annotations=many | {f"{UUID}0": "x" * 200_000}))
    assert len(pod.choice) <= 128
    assert max(map(len, pod.choice.values())) <= 8192


def test_an_earlier_choice_counts_beside_the_one_that_takes_its_place(cluster: Cluster) -> None:
    """Until the later one is written, or the pod is seen bound, or is gone."""
    pod = make_pod("a", HALF)
    cluster.note_pod(pod, 0.0)
    promise(cluster, pod, "n", {})
    earlier = cluster.holds["uid-of-a"]
    cluster.release("uid-of-a")
    promise(cluster, pod, "m", {})
    cluster.keep_earlier(earlier)
    assert (used(cluster, "n"), used(cluster, "m")) == ({0: 50}, {0: 50})
    cluster.drop_earlier("uid-of-a")
    assert (used(cluster, "n"), used(cluster, "m")) == ({}, {0: 50})
    cluster.keep_earlier(earlier)
    cluster.note_pod(make_pod("a", HALF, node="m", annotations=choose("m", 0)), 0.0)
    assert (used(cluster, "n"), used(cluster, "m")) == ({}, {0: 50})
    cluster.keep_earlier(earlier)
    cluster.drop_pod("uid-of-a")
    assert (used(cluster, "n"), used(cluster, "m")) == ({}, {})


def test_an_earlier_choice_counts_again_unless_the_pod_is_seen_bound(cluster: Cluster) -> None:
    pod = make_pod("a", HALF)
    cluster.note_pod(pod, 0.0)
    promise(cluster, pod, "n", {})
    earlier = cluster.holds["uid-of-a"]
    cluster.release("uid-of-a")
    cluster.restore(earlier)
    assert used(cluster, "n") == {0: 50}
    cluster.note_pod(make_pod("a", HALF, node="m", annotations=choose("m", 1)), 0.0)
    cluster.restore(earlier)
    assert (used(cluster, "n"), used(cluster, "m")) == ({}, {1: 50})
