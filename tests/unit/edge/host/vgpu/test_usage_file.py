"""The usage file is read as what it is: written by anybody in the container."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.edge.host.errors import VgpuFileInvalid
from nodeagent.edge.host.vgpu import layout
from nodeagent.edge.host.vgpu.layout import PROCESS, SHARE, USAGE_BYTES, USAGE_HEADER
from nodeagent.edge.host.vgpu.usage_file import (
    Process,
    ProcessUse,
    Reason,
    Status,
    Usage,
    create_usage,
    parse_usage,
    read_usage,
    render_head,
)

pytestmark = pytest.mark.may_block("nothing here runs on an event loop")


def fill(*processes: dict[str, Any], **header: int) -> bytes:
    head = USAGE_HEADER.unpack(render_head()) | {"high_water": len(processes)} | header
    slots = b""
    for process in processes:
        shares = b"".join(SHARE.pack(**each) for each in process.pop("shares", ()))
        slots += PROCESS.pack(**process, shares=shares.ljust(layout.DEVICES * SHARE.size, b"\0"))
    return (USAGE_HEADER.pack(**head) + slots).ljust(USAGE_BYTES, b"\0")


def own(pid: int, start: int, state: int = layout.OWNER_HELD) -> int:
    return state << 62 | pid << layout.PID_SHIFT | start


def test_new_file_has_no_processes(tmp_path: Path) -> None:
    """Whoever the container's processes are, they may write it, also where the disk is full by then."""
    path = tmp_path / "usage"
    create_usage(path)
    assert read_usage(path) == Usage((), 0, 0, Reason.FINE)
    status = path.stat()
    assert status.st_mode & 0o777 == 0o666
    assert status.st_blocks * 512 >= status.st_size == USAGE_BYTES


def test_processes_are_read_with_what_they_use() -> None:
    """Free slots, and those that are being taken back from the dead, are nobody's."""
    content = fill(
        {
            "owner": own(17, 4711),
            "pid_namespace": 5,
            "heartbeat_ns": 6,
            "status": 1,
            "shares": [{"used": 10}, {"used": 3, "pending": 9, "refusals": 2}],
        },
        {"owner": 0, "shares": [{"used": 99}]},
        {"owner": own(19, 1, layout.OWNER_RECLAIMED), "shares": [{"used": 99}]},
        {"owner": own(layout.PID_MASK, layout.START_MASK), "status": 2, "reason": 4, "shares": [{"used": 5}]},
        passing_starts=1,
        last_reason=4,
    )
    usage = parse_usage(content)
    rest = (ProcessUse(0, 0),) * (layout.DEVICES - 2)
    assert usage.processes[0] == Process(
        17, 4711, 5, 6, Status.LIMITING, Reason.FINE, (ProcessUse(10, 0), ProcessUse(3, 2), *rest)
    )
    assert [(each.pid, each.status, each.reason) for each in usage.processes[1:]] == [
        (layout.PID_MASK, Status.PASSING, Reason.LIMITS_DAMAGED)
    ]
    assert [usage.sum_used(slot) for slot in range(3)] == [15, 3, 0]
    assert (usage.passing_starts, usage.refusing_starts, usage.last_reason) == (1, 0, Reason.LIMITS_DAMAGED)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it has 0 bytes"),
        (b"x" + fill()[1:], "its head"),
        (fill()[:24] + b"\xff" + fill()[25:], "its head"),
        (fill(high_water=257), "257 processes"),
        (fill(last_reason=77), "not a valid Reason"),
        (fill(passing_starts=1 << 60), "starts"),
        (fill(refusing_starts=1 << 60), "starts"),
        (fill({"owner": own(1, 1, 3)}), "unknown state 3"),
        (fill({"owner": own(1, 1, 0)}), "unknown state 0"),
        (fill({"owner": own(1, 1), "status": 9}), "not a valid Status"),
        (fill({"owner": own(1, 1), "reason": 9}), "not a valid Reason"),
        (fill({"owner": own(1, 1), "shares": [{"used": 1 << 60}]}), "bytes in use"),
        (fill({"owner": own(1, 1), "shares": [{"refusals": 1 << 60}]}), "refusals"),
    ],
)
def test_what_cannot_be_true_is_named(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "usage"
    path.write_bytes(content)
    with pytest.raises(VgpuFileInvalid, match=reason):
        read_usage(path)


@given(st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), max_size=20))
def test_any_damage_is_read_or_refused(damage: list[tuple[int, int]]) -> None:
    """Never another error, and never a number that is out of all bounds."""
    content = bytearray(fill({"owner": own(1, 1), "status": 1}, {"owner": own(2, 1), "status": 1}))
    for place, value in damage:
        content[place] = value
    try:
        usage = parse_usage(bytes(content))
    except ValueError:
        return
    assert all(0 <= usage.sum_used(slot) <= layout.PROCESSES << 50 for slot in range(layout.DEVICES))
