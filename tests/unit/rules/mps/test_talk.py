"""What is said to a daemon, and how its answers are read."""

from collections.abc import Sequence

import pytest

from nodeagent.model.mps import MpsLimits
from nodeagent.rules.mps.talk import (
    find_refusal,
    read_pids,
    read_servers,
    render_defaults,
    render_look,
    render_quit,
    render_server_limits,
)
from tests.support.gpus import gpu_uuid

A, B = gpu_uuid(0), gpu_uuid(1)
LIMITS = MpsLimits(thread_percentage=25, memory_mib={B: 2048})


def test_limits_are_set_and_then_asked_for() -> None:
    """Devices are counted as the daemon sees them."""
    assert render_defaults((A, B), LIMITS) == (
        "set_default_device_pinned_mem_limit 1 2048M",
        "set_default_active_thread_percentage 25",
        "get_default_device_pinned_mem_limit 1",
        "get_default_active_thread_percentage",
    )
    assert render_defaults((A,), MpsLimits()) == ("get_default_active_thread_percentage",)


def test_a_running_server_gets_them_for_its_new_clients() -> None:
    """Without a percentage, all threads."""
    assert render_server_limits(7, (A, B), LIMITS) == (
        "set_device_pinned_mem_limit 7 1 2048M",
        "set_active_thread_percentage 7 25",
    )
    assert render_server_limits(7, (A,), MpsLimits()) == ("set_active_thread_percentage 7 100",)


@pytest.mark.parametrize(
    ("size", "told"),
    [
        (2048, "2048M"),
        (2048, "2G"),
        (20389, "19G"),
        (1025, "1G"),
        (2047, "1G"),
        (1024, "1G"),
        (1023, "1023M"),
        (1, "1M"),
    ],
)
def test_a_limit_is_told_in_whole_units_rounded_down(size: int, told: str) -> None:
    """What is said to the commands before is not looked at."""
    limits = MpsLimits(thread_percentage=25, memory_mib={B: size})
    assert not find_refusal((A, B), limits, ["25.0", told, "25.0"])


@pytest.mark.parametrize(
    "told", ["20G", "18G", "20388M", "20390M", "19", "19.0", "25.0", "-19G", "19G 19G", "limit 19G", "19K"]
)
def test_another_limit_is_not_taken_for_it(told: str) -> None:
    """Nor a number without a unit, such as the percentage of a daemon that tells no limit."""
    limits = MpsLimits(thread_percentage=25, memory_mib={B: 20389})
    assert "does not take 20389M as memory limit of device 1" in find_refusal((A, B), limits, [told, "25.0"])


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([], "it does not tell its limits: it said nothing"),
        (["2G"], "it does not tell its limits: it said '2G'"),
        (["2G", "100.0"], "it does not take 25 as active thread percentage"),
        (["2G", "no such command"], "it does not take 25 as active thread percentage"),
        (["1G", "25.0"], "it does not take 2048M as memory limit of device 1: it said '1G 25.0'"),
        (["no such command", "25.0"], "it does not take 2048M"),
    ],
)
def test_what_was_not_taken_is_told(answer: Sequence[str], said: str) -> None:
    """With the daemon's own words."""
    assert find_refusal((A, B), LIMITS, answer).startswith(said)


def test_without_a_percentage_all_threads_are_expected() -> None:
    """A daemon that was found may have another from before."""
    assert not find_refusal((A,), MpsLimits(), ["100.0"])
    assert find_refusal((A,), MpsLimits(), ["50.0"])


def test_a_look_asks_for_servers_and_limits_at_once() -> None:
    """Limits come last, so that whatever is before them is a server."""
    assert render_look((A, B), LIMITS) == (
        "get_server_list",
        "get_default_device_pinned_mem_limit 1",
        "get_default_active_thread_percentage",
    )
    answer = ["12", "13", "2G", "25.0"]
    assert not find_refusal((A, B), LIMITS, answer)
    assert read_servers((A, B), LIMITS, answer) == (12, 13)
    assert read_servers((A,), MpsLimits(), ["100.0"]) == ()


def test_process_ids_are_read_and_nothing_else() -> None:
    assert read_pids(["12", " 13 ", "", "no server", "²"]) == (12, 13)


def test_it_ends_when_its_clients_have_or_by_a_deadline() -> None:
    assert render_quit(5) == "quit -t 5"
