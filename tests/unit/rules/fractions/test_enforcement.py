"""What is to hold a container to its part, as its pod says."""

import pytest

from nodeagent.model.errors import RequestInvalid
from nodeagent.model.journal import Enforcement
from nodeagent.rules.fractions.enforcement import explain_several, read_enforcement_choice

KEY = "nodeagent.io/gpu-enforcement"


def test_a_pod_says_what_it_wants_or_leaves_it_to_its_node() -> None:
    """By one of the words of the configuration."""
    assert read_enforcement_choice(KEY, {}) is None
    assert [read_enforcement_choice(KEY, {KEY: str(each)}) for each in Enforcement] == list(Enforcement)


def test_another_word_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(RequestInvalid, match="give one of advise, library, mps") as caught:
        read_enforcement_choice(KEY, {KEY: "x" * 1000})
    assert len(caught.value.reason) < 120


def test_parts_of_several_gpus_are_too_many_for_mps() -> None:
    assert explain_several(3).startswith("parts of 3 GPUs are asked for, and MPS holds a process to its part of one")
