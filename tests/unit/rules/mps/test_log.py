"""What of a daemon's log is repeated; the lines are those of NVIDIA's own daemons, see `tests/contract/mps`."""

import pytest

from nodeagent.rules.mps.log import find_news, has_orders

HEAD = "[2026-11-26 23:05:26.973 Control  8204] "
OWN = ("set_default_active_thread_percentage 25", "set_default_device_pinned_mem_limit 0 900M")


@pytest.mark.parametrize(
    "text",
    [
        "Accepting connection...",
        "NEW UI",
        "UI closed",
        "Cmd:get_server_list",
        "Cmd:get_default_device_pinned_mem_limit 0",
        "Cmd:set_default_active_thread_percentage 25",
        "No default pinned memory limit set for the device!",
        "100.0",
        "19G",
        "4711",
    ],
)
def test_a_question_leaves_no_news(text: str) -> None:
    """Neither ours nor anybody else's."""
    assert find_news([HEAD + text], OWN) == ()


@pytest.mark.parametrize(
    ("text", "is_order"),
    [
        ("Starting new server 7 for user 0", False),
        ("Server 7 exited with status 1", False),
        ("NEW CLIENT 12 from user 500: Server already exists", False),
        ("set_default_active_thread_percentage 25", False),
        ("Cmd:set_default_active_thread_percentage 99", True),
        ("Cmd:quit", True),
        ("Cmd:", True),
    ],
)
def test_all_else_is_news(text: str, is_order: bool) -> None:
    news = find_news([HEAD + "NEW UI", HEAD + text], OWN)
    assert news == (HEAD + text,)
    assert has_orders(news) is is_order


def test_a_line_without_a_head_is_judged_by_its_text() -> None:
    """The log was cut within a line, or a library has written there."""
    assert find_news(["", "UI closed", "losed", "Segmentation fault"], OWN) == ("losed", "Segmentation fault")
