"""Who really holds what: a violation is found, and what is allowed is not taken for one."""

import pytest

from tests.chaos.truth import Truth, Violated, find_doubled, find_left_over, find_missing


def test_a_device_that_two_pods_have_is_a_violation() -> None:
    truth = Truth()
    truth.admit("a", ["g0", "g1"], 2)
    with pytest.raises(Violated, match=r"b was given .'g1'., which a has"):
        truth.admit("b", ["g1"], 1)


def test_a_pod_with_fewer_devices_than_it_asked_for_is_a_violation() -> None:
    with pytest.raises(Violated, match="a asked for 2 devices and runs with"):
        Truth().admit("a", ["g0"], 2)


def test_a_deleted_pod_gives_its_devices_back() -> None:
    """The next pod may have them."""
    truth = Truth()
    truth.admit("a", ["g0"], 1)
    truth.delete("a")
    truth.admit("b", ["g0"], 1)
    assert truth.pods == ("b",)


def test_the_table_is_held_against_the_pods() -> None:
    """Lost, doubled and left-over devices are each found by name."""
    truth = Truth()
    truth.admit("a", ["g0", "g1"], 2)
    told = [["g1", "g2"], ["g2"]]
    assert find_missing(truth, told) == ("g0",)
    assert find_doubled(told) == ("g2",)
    assert find_left_over(truth, told) == ("g2",)


def test_an_empty_node_has_nothing_to_violate() -> None:
    """No pod, no allocation, no complaint."""
    assert (find_missing(Truth(), []), find_doubled([]), find_left_over(Truth(), [])) == ((), (), ())
