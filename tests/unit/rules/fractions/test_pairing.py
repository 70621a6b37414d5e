"""Who is about to start, out of two records of which each leaves something out."""

from collections.abc import Mapping

import pytest

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.errors import CallerUnclear
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.ports.kubelet import ContainerDevices
from nodeagent.rules.fractions.pairing import Caller, Records, Standing, find_caller, find_standing, is_proven

CORE, MEMORY = ResourceName("tencent.com/vcuda-core"), ResourceName("tencent.com/vcuda-memory")
NAMED, NUMBERED = PodIdentity(namespace="ns", name="a"), PodIdentity(namespace="", name="", uid="u")
POD = PodIdentity(namespace="ns", name="a", uid="u")
OTHER = PodIdentity(namespace="ns", name="b", uid="v")
OTHER_NUMBERED = PodIdentity(namespace="", name="", uid="v")


def ids(text: str) -> tuple[DeviceId, ...]:
    return tuple(map(DeviceId, text))


def entry(pod: PodIdentity, container: str, devices: str, resource: ResourceName = CORE) -> ContainerDevices:
    return ContainerDevices(pod=pod, container=container, resource=resource, devices=ids(devices))


def named_entry(uid: str, container: str, devices: str, cdi_name: str) -> ContainerDevices:
    """As the kubelet's notes have it, with the name that its runtime was told."""
    pod = PodIdentity(namespace="", name="", uid=uid)
    return ContainerDevices(pod=pod, container=container, resource=CORE, devices=ids(devices), cdi_names=(cdi_name,))


def find(records: Records, asked: str = "ba", memory: ResourceName | None = MEMORY) -> Caller:
    return find_caller(records, CORE, memory, ids(asked))


LISTED = (entry(NAMED, "c", "ab"), entry(NAMED, "c", "xyz", MEMORY), entry(NAMED, "d", "e"))
NOTED = (entry(NUMBERED, "c", "ba"), entry(NUMBERED, "c", "xyz", MEMORY), entry(NUMBERED, "d", "e"))


@pytest.mark.parametrize(
    ("records", "pod"),
    [
        (Records(listed=LISTED), NAMED),
        (Records(noted=NOTED), NUMBERED),
        (Records(listed=LISTED, noted=NOTED), POD),
    ],
)
def test_the_caller_is_the_one_who_holds_exactly_these_ids(records: Records, pod: PodIdentity) -> None:
    """By whichever record there is, in any order; its memory is found by pod and container."""
    assert find(records) == Caller(pod=pod, containers=("c",), cores=ids("ab"), memory=ids("xyz"))


@pytest.mark.parametrize(
    ("listed", "pod"),
    [
        (LISTED[2:], POD),
        ((entry(NAMED, "d", "f"),), NUMBERED),
        ((entry(PodIdentity(namespace="ns", name="b"), "d", "w"),), NUMBERED),
        ((), NUMBERED),
    ],
)
def test_an_init_container_is_known_by_another_of_its_pod(
    listed: tuple[ContainerDevices, ...], pod: PodIdentity
) -> None:
    """The list leaves it out, and the notes have no names: whoever stands in both with the same ids tells."""
    noted = (*NOTED, entry(OTHER_NUMBERED, "d", "w"))
    assert find(Records(listed=listed, noted=noted)).pod == pod


def test_a_profile_without_memory_pairs_nothing() -> None:
    assert find(Records(listed=LISTED), memory=None).memory == ()


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        (Records(), "the kubelet has not written down yet who has them"),
        (Records(listed=(entry(NAMED, "c", "abz"),)), "has not written down yet"),
        (Records(listed=(entry(NAMED, "c", "ab", MEMORY),)), "has not written down yet"),
        (Records(listed=(entry(NAMED, "c", "ab"), entry(OTHER, "c", "ab"))), "records name ns/a and ns/b"),
        (Records(noted=(entry(NUMBERED, "c", "ab"), entry(OTHER, "c", "ab"))), "records name ns/b and pod u"),
        (Records(listed=LISTED, noted=(entry(OTHER, "c", "ab"),)), "records name ns/a and ns/b"),
    ],
)
def test_records_that_do_not_tell_are_no_reason_to_guess(records: Records, reason: str) -> None:
    """The kubelet asks again, and the records are better then."""
    with pytest.raises(CallerUnclear, match=reason):
        find(records)


INIT = (*NOTED, entry(NUMBERED, "init", "ab"), entry(NUMBERED, "init", "xyz", MEMORY))


def test_an_init_container_shares_its_ids() -> None:
    """The list of pods leaves it out, and where either may start it is both."""
    caller = find(Records(listed=LISTED, noted=INIT))
    assert (caller.pod, caller.containers, caller.memory) == (POD, ("c", "init"), ids("xyz"))


@pytest.mark.parametrize("memory", ["x", "wxyz", ""])
def test_containers_that_share_ids_have_as_much_as_the_one_that_has_most(memory: str) -> None:
    """Nobody can tell which of them starts, they never run at once, and the pod was admitted with that much."""
    noted = (*NOTED, entry(NUMBERED, "init", "ab"), entry(NUMBERED, "init", memory, MEMORY))
    assert find(Records(listed=LISTED, noted=noted)).memory == max(ids("xyz"), ids(memory), key=len)


def test_containers_that_share_ids_and_no_memory_must_be_told_apart() -> None:
    """The kubelet gives the second what the first had: records that say otherwise are of two moments."""
    noted = (*NOTED, entry(NUMBERED, "init", "ab"), entry(NUMBERED, "init", "vw", MEMORY))
    with pytest.raises(CallerUnclear, match="c, init of ns/a hold the same ids and differ"):
        find(Records(listed=LISTED, noted=noted))


PROMISED = "kind/part=p1"


@pytest.mark.parametrize(
    ("noted", "expected"),
    [
        ((), False),
        ((named_entry("u", "c", "ab", PROMISED),), True),
        ((named_entry("u", "c", "ba", PROMISED), named_entry("u", "init", "ab", "kind/part=p0")), True),
        ((named_entry("u", "c", "ab", "kind/part=p0"),), False),
        ((named_entry("u", "c", "ab", PROMISED), named_entry("v", "c", "ab", "kind/part=p0")), False),
        ((named_entry("u", "c", "abc", PROMISED),), False),
    ],
)
def test_the_name_that_was_promised_last_proves_whose_ids_are(
    noted: tuple[ContainerDevices, ...], expected: bool
) -> None:
    """Only the container that was admitted last with these ids was told it; notes that lack it are late."""
    assert is_proven(noted, CORE, ids("ba"), PROMISED) is expected


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        ({}, Standing(None, ())),
        ({1: ("ab", "xyz")}, Standing(1, ())),
        ({1: ("ba", "zyx"), 2: ("ef", "g")}, Standing(1, ())),
        ({1: ("ab", "xy")}, Standing(None, (1,))),
        ({3: ("bc", "xyz"), 2: ("a", "q"), 4: ("ef", "xyz")}, Standing(None, (2, 3))),
    ],
)
def test_a_binding_is_kept_or_takes_the_place_of_one_that_is_over(
    bound: Mapping[int, tuple[str, str]], expected: Standing
) -> None:
    """The same ids are the same binding; a container that shares some of them with another comes after it."""
    caller = Caller(pod=POD, containers=("c",), cores=ids("ab"), memory=ids("xyz"))
    assert find_standing({number: (ids(one), ids(two)) for number, (one, two) in bound.items()}, caller) == expected
