"""Which choices hold GPUs where the extender proves its own: others hold nothing, and none holds longer."""

from collections.abc import Mapping

import pytest

from nodeagent.extender.cluster import Cluster
from nodeagent.extender.decide import Decider
from nodeagent.extender.gpu_pod import CHOICE_DIGEST, GpuPod
from nodeagent.extender.replica import list_void
from nodeagent.extender.trust.digest import ChoiceDigests
from nodeagent.rules.fractions.profiles import CoresProfile
from tests.support.placement import six
from tests.support.scheduling import PROFILES, limit, make_pod, make_seen_node

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
INDEX = "tencent.com/predicate-gpu-idx-0"
HALF = limit(50, 4)


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def cluster(told: list[str]) -> Cluster:
    made = Cluster(PROFILES, assume_seconds=60.0, on_foreign=lambda pod: told.append(pod.name))
    for name in "nm":
        made.note_node(make_seen_node(name, six()))
    made.use_digests(ChoiceDigests([KEY]), 0.0)
    return made


def used(cluster: Cluster, node: str = "n") -> dict[int, int]:
    account = cluster.find_space(node)
    assert account is not None
    return {room.index: room.cores_used for room in account.space.rooms if room.users}


def choose(node: str, index: int, time: str = "1") -> dict[str, str]:
    return {"tencent.com/predicate-node": node, "tencent.com/predicate-time": time, INDEX: str(index)}


def sign(choice: Mapping[str, str], name: str = "a", key: bytes = KEY) -> dict[str, str]:
    empty = Cluster(PROFILES, assume_seconds=1.0).read_pod(make_pod(name, HALF))
    assert empty is not None
    return ChoiceDigests([key]).sign(empty, CoresProfile(), choice)


def note(cluster: Cluster, choice: Mapping[str, str], now: float = 0.0, *, name: str = "a", node: str = "") -> GpuPod:
    cluster.note_pod(make_pod(name, HALF, node=node, annotations=choice), now)
    return cluster.pods[f"uid-of-{name}"]


def test_a_choice_of_somebody_elses_holds_nothing_and_is_told_once(cluster: Cluster, told: list[str]) -> None:
    """However often it is edited; of another pod too it is told."""
    for moment in range(3):
        note(cluster, choose("n", 3, str(moment)), moment)
    note(cluster, sign(choose("n", 2), key=OTHER_KEY), 3.0, name="b")
    assert not cluster.holds
    assert used(cluster) == {}
    assert told == ["a", "b"]
    assert cluster.foreign == 2


def test_a_choice_of_an_extender_holds_for_a_while(cluster: Cluster, told: list[str]) -> None:
    note(cluster, sign(choose("n", 3)), 0.0)
    assert used(cluster) == {3: 50}
    cluster.expire(60.0)
    assert used(cluster) == {}
    assert told == []


def test_a_choice_that_is_taken_off_and_put_back_holds_no_longer(cluster: Cluster) -> None:
    """Nor do two that take turns."""
    first, second = sign(choose("n", 3, "1")), sign(choose("n", 4, "2"))
    note(cluster, first, 0.0)
    note(cluster, second, 10.0)
    assert used(cluster) == {4: 50}
    for now in (20.0, 40.0, 60.0):
        note(cluster, first, now)
        assert used(cluster) == {4: 50}
        note(cluster, second, now + 5)
        assert used(cluster) == {4: 50}
    cluster.expire(70.0)
    for now, choice in ((71.0, {}), (72.0, first), (73.0, {}), (74.0, second)):
        note(cluster, choice, now)
        assert used(cluster) == {}


def test_a_promise_of_our_own_counts_once_too(cluster: Cluster) -> None:
    """After it was taken back the pod's owner cannot bring it to life."""
    pod = note(cluster, {}, 0.0)
    parts = Decider(cluster, "pack").place(pod, "n").parts
    written = sign(choose("n", 0))
    cluster.assume(pod, "n", parts, written, 60.0)
    note(cluster, written, 1.0)
    assert used(cluster) == {0: 50}
    note(cluster, choose("n", 1), 2.0)
    assert used(cluster) == {0: 50}
    cluster.release("uid-of-a")
    note(cluster, {}, 3.0)
    note(cluster, written, 4.0)
    assert not cluster.holds


def test_who_writes_over_a_choice_does_not_move_it(cluster: Cluster, told: list[str]) -> None:
    """The scheduler may be binding the pod by it; where it is looked at again, it still holds what it held."""
    note(cluster, sign(choose("n", 3)), 0.0)
    for now in (1.0, 2.0):
        note(cluster, choose("m", 1), now)
        assert used(cluster) == {3: 50}
        assert used(cluster, "m") == {}
    assert told == ["a"]
    cluster.expire(60.0)
    assert used(cluster) == {}


def test_a_bound_pod_counts_by_what_it_says_whoever_wrote_it(cluster: Cluster, told: list[str]) -> None:
    """As one that was chosen for before there was a key, or whose annotation its node has corrected."""
    note(cluster, choose("n", 3), 0.0, node="n")
    assert used(cluster) == {3: 50}
    note(cluster, choose("n", 4), 1.0, name="b")
    note(cluster, choose("n", 4), 2.0, name="b", node="n")
    assert used(cluster) == {3: 50, 4: 50}
    assert told == ["b"]
    assert not cluster.suspects


def test_a_key_that_comes_later_proves_what_was_seen_before(cluster: Cluster) -> None:
    """Replicas hear of a new key one after the other; what is nobody's stays nobody's."""
    note(cluster, sign(choose("n", 3), key=OTHER_KEY), 0.0)
    note(cluster, choose("n", 4), 0.0, name="b")
    note(cluster, sign(choose("n", 5), "c"), 0.0, name="c")
    note(cluster, choose("n", 1), 1.0, name="c")
    assert used(cluster) == {5: 50}
    cluster.use_digests(ChoiceDigests([OTHER_KEY, KEY]), 10.0)
    assert used(cluster) == {3: 50, 5: 50}
    assert cluster.holds["uid-of-a"].until_seconds == 70.0
    assert cluster.suspects == {"uid-of-b", "uid-of-c"}


def test_only_our_own_choices_are_swept(cluster: Cluster) -> None:
    """Another scheduler may be about to bind the pod by its own."""
    note(cluster, sign(choose("n", 3)), 0.0)
    note(cluster, choose("n", 4), 0.0, name="b")
    cluster.expire(100.0)
    assert [pod.name for pod in list_void(cluster)] == ["a"]
    cluster.assume(cluster.pods["uid-of-b"], "n", (), sign(choose("n", 0), "b"), 200.0)
    note(cluster, sign(choose("n", 0), "b"), 101.0, name="b")
    cluster.expire(200.0)
    assert sorted(pod.name for pod in list_void(cluster)) == ["a", "b"]


def test_what_is_remembered_of_choices_goes_with_the_pod_and_is_bounded(cluster: Cluster) -> None:
    """One that comes again has another uid."""
    for moment in range(200):
        note(cluster, sign(choose("n", 3, str(moment))), 0.0)
    assert len(cluster._spent["uid-of-a"]) < 100
    note(cluster, sign(choose("n", 3)), 0.0, node="n")
    assert not cluster._spent
    note(cluster, sign(choose("n", 3), "b"), 0.0, name="b")
    note(cluster, choose("n", 3), 0.0, name="c")
    cluster.keep_pods(())
    assert not cluster._spent
    assert not cluster.suspects
    gone = Cluster(PROFILES, assume_seconds=60.0).read_pod(make_pod("gone", HALF))
    assert gone is not None
    cluster.assume(gone, "n", (), {CHOICE_DIGEST: "x"}, 60.0)
    assert not cluster._spent


def test_without_a_key_a_choice_counts_whoever_made_it(cluster: Cluster, told: list[str]) -> None:
    """As in plain installations, and as it was."""
    cluster.use_digests(ChoiceDigests(), 0.0)
    note(cluster, choose("n", 3, "1"), 0.0)
    note(cluster, choose("n", 4, "2"), 50.0)
    cluster.expire(100.0)
    assert used(cluster) == {4: 50}
    assert told == []
