"""Whose a choice is: what the digest covers, and which keys are believed."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from nodeagent.extender.errors import KeysInvalid
from nodeagent.extender.gpu_pod import CHOICE_DIGEST, GpuPod, read_gpu_pod
from nodeagent.extender.trust.digest import ChoiceDigests, parse_keys
from nodeagent.model.scheduling import SeenPod
from nodeagent.rules.fractions.profiles import CoresProfile
from tests.support.scheduling import PROFILES, SHARE, limit, make_pod

OLD, NEW = b"o" * 32, b"n" * 32
NODE, INDEX = "tencent.com/predicate-node", "tencent.com/predicate-gpu-idx-0"
CHOICE = {NODE: "n", "tencent.com/predicate-time": "1", "tencent.com/gpu-assigned": "false", INDEX: "3"}


def read(pod: SeenPod) -> GpuPod:
    found = read_gpu_pod(PROFILES, pod)
    assert found is not None
    return found


def make(annotations: Mapping[str, str], name: str = "a", cores: int = 30) -> GpuPod:
    return read(make_pod(name, limit(cores, 4), annotations=annotations))


def sign(*keys: bytes, choice: Mapping[str, str] = CHOICE, name: str = "a") -> dict[str, str]:
    return ChoiceDigests(keys).sign(make({}, name), CoresProfile(), choice)


def test_a_choice_is_proved_by_the_key_that_it_was_made_with() -> None:
    """With other annotations of the pod, which say nothing of the choice."""
    signed = sign(NEW)
    assert {key: signed[key] for key in CHOICE} == CHOICE
    assert ChoiceDigests([NEW]).proves(make(signed | {"mine": "x"}))
    assert not ChoiceDigests([OLD]).proves(make(signed))


@pytest.mark.parametrize(
    "forged",
    [
        {NODE: "m"},
        {INDEX: "4"},
        {"tencent.com/predicate-time": "2"},
        {"tencent.com/predicate-gpu-idx-1": "4"},
        {"tencent.com/predicate-gpu-uuid-0": "GPU-1"},
        {CHOICE_DIGEST: ""},
        {CHOICE_DIGEST: "0" * 64},
        {CHOICE_DIGEST: "ä\ud800"},
    ],
)
def test_what_was_changed_is_not_proved(forged: dict[str, str]) -> None:
    """Node, GPUs, moment, another container's, or the digest itself."""
    digests = ChoiceDigests([NEW])
    assert digests.proves(make(sign(NEW)))
    assert not digests.proves(make(sign(NEW) | forged))


def test_a_choice_is_for_one_pod_of_one_size() -> None:
    """Copied to the next pod of its owner it says nothing."""
    digests, signed = ChoiceDigests([NEW]), sign(NEW)
    assert not digests.proves(make(signed, name="b"))
    assert not digests.proves(make(signed, cores=40))
    assert not digests.proves(make({key: text for key, text in signed.items() if key != CHOICE_DIGEST}))


def test_a_new_key_is_believed_before_it_makes_digests_and_an_old_one_after() -> None:
    """While replicas hear of it one after the other: first as the second key, then as the first, then alone."""
    before, between, after = ChoiceDigests([OLD, NEW]), ChoiceDigests([NEW, OLD]), ChoiceDigests([NEW])
    by_old, by_new = make(sign(OLD, NEW)), make(sign(NEW, OLD))
    assert [each.proves(by_old) for each in (before, between, after)] == [True, True, False]
    assert [each.proves(by_new) for each in (before, between, after)] == [True, True, True]


def test_without_a_key_every_choice_is_believed_and_none_is_signed() -> None:
    assert sign() == CHOICE
    assert ChoiceDigests().proves(make(CHOICE))


def test_choices_in_shares_are_proved_too() -> None:
    profile = PROFILES.shares
    assert profile is not None
    choice = {profile.chosen_node: "n", profile.chosen_time: "1", profile.allocated[0]: "GPU-0,NVIDIA,1024,30:;"}
    empty = read(make_pod("a", {SHARE: "1"}))
    digests = ChoiceDigests([NEW])
    signed = digests.sign(empty, profile, choice)
    assert digests.proves(read(make_pod("a", {SHARE: "1"}, annotations=signed)))
    assert not digests.proves(read(make_pod("a", {SHARE: "1"}, annotations=signed | {profile.chosen_node: "m"})))


def test_a_choice_for_more_containers_than_are_read_is_proved_in_whatever_order_it_comes_back() -> None:
    """The API server writes annotations in an order of its own."""
    many = CHOICE | {f"tencent.com/predicate-gpu-idx-{number}": "1" for number in range(300)}
    digests = ChoiceDigests([NEW])
    signed = sign(NEW, choice=many)
    assert digests.proves(make(dict(sorted(signed.items()))))
    assert digests.proves(make(dict(sorted(signed.items(), reverse=True))))


def test_a_pod_that_can_never_be_proves_nothing() -> None:
    """It has no demand, and no choice is read of it."""
    pod = replace(make(sign(NEW)), demand=None, choice={})
    assert not ChoiceDigests([NEW]).proves(pod)


def test_a_file_of_keys_has_one_a_line() -> None:
    """With remarks and empty lines."""
    assert parse_keys(b"# of today\n" + NEW + b"\n\n  " + OLD + b"  \r\n") == (NEW, OLD)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no key"),
        (b"# nothing\n", "no key"),
        (NEW + b"\nshort\n", "key 2 is 5 characters long"),
        ((NEW + b"\n") * 9, "9 keys"),
    ],
)
def test_keys_that_prove_nothing_are_refused(content: bytes, reason: str) -> None:
    """By their number, never by their text."""
    with pytest.raises(KeysInvalid, match=reason) as refused:
        parse_keys(content)
    assert "short" not in str(refused.value)
