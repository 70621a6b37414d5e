"""Limits files that are missing, of another version or damaged, and limits that change under a running process."""

import select
import shutil
import time
import uuid
from collections.abc import Callable

import pytest

from nodeagent.edge.host.vgpu.layout import LIMITS_HEADER, MEASURED_AT
from nodeagent.edge.host.vgpu.limits_file import FailMode
from nodeagent.edge.host.vgpu.usage_file import Reason, Status, create_usage
from tests.component.vgpu.place import UUIDS, Place
from tests.component.vgpu.talk import Talk, talk

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler: apt-get install gcc"),
    pytest.mark.may_block("nothing here runs on an event loop"),
]

UNLIMITED = (1 << 64) - 1
FAILED = {FailMode.PASS: (Status.PASSING, "uncounted"), FailMode.REFUSE: (Status.REFUSING, "denied")}
VERSION_AT, FAIL_MODE_AT, SLOTS_AT, SEQUENCE_AT = (
    LIMITS_HEADER.offsets[name] for name in ("version", "fail_mode", "slots", "sequence")
)


def remove(place: Place) -> None:
    place.limits_path.unlink()


def cut(place: Place) -> None:
    place.limits_path.write_bytes(place.limits_path.read_bytes()[:-1])


def break_magic(place: Place) -> None:
    place.overwrite(0, b"x")


def break_mode(place: Place) -> None:
    place.overwrite(FAIL_MODE_AT, b"\7")


def make_older(place: Place) -> None:
    place.overwrite(VERSION_AT, b"\0")


def make_newer(place: Place) -> None:
    place.overwrite(VERSION_AT, b"\2")


def break_slot(place: Place) -> None:
    place.overwrite(MEASURED_AT - 1, b"x")


def add_slots(place: Place) -> None:
    place.overwrite(SLOTS_AT, b"\x11")


def leave_half_written(place: Place) -> None:
    place.overwrite(SEQUENCE_AT, b"\3")


def wait_for(conversation: Talk, wanted: tuple[Status, Reason, int]) -> None:
    """The process itself decides when it looks again; nothing outside can hear of it."""
    until = time.monotonic() + 20
    while conversation.look() != wanted:
        assert time.monotonic() < until, conversation.look()


@pytest.mark.long
@pytest.mark.parametrize("mode", FailMode)
@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (make_older, Reason.LIMITS_OLDER),
        (make_newer, Reason.LIMITS_NEWER),
        (break_slot, Reason.LIMITS_DAMAGED),
        (add_slots, Reason.LIMITS_DAMAGED),
        (leave_half_written, Reason.LIMITS_DAMAGED),
    ],
)
def test_a_file_that_is_not_understood_still_says_what_to_do(
    place: Place, spoil: Callable[[Place], None], reason: Reason, mode: FailMode
) -> None:
    """The variable does not count where the file speaks; the usage file keeps what happened after the process."""
    place.create(1000, fail_mode=mode)
    spoil(place)
    opposite = "pass" if mode is FailMode.REFUSE else "refuse"
    status, verdict = FAILED[mode]
    with talk(place, NODEAGENT_VGPU_FAIL_MODE=opposite) as one:
        assert one.look()[:2] == (status, reason)
        assert one.reserve(1001) == verdict
        (process,) = place.read().processes
        assert (process.status, process.reason, process.shares[0].used_bytes) == (status, reason, 0)
        one.end()
    usage = place.read()
    assert usage.last_reason == reason
    assert (usage.passing_starts, usage.refusing_starts) == ((1, 0) if mode is FailMode.PASS else (0, 1))


@pytest.mark.parametrize("mode", FailMode)
@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (remove, Reason.LIMITS_MISSING),
        (cut, Reason.LIMITS_DAMAGED),
        (break_magic, Reason.LIMITS_DAMAGED),
        (break_mode, Reason.LIMITS_DAMAGED),
    ],
)
@pytest.mark.long
def test_where_no_file_speaks_the_variable_does(
    place: Place, spoil: Callable[[Place], None], reason: Reason, mode: FailMode
) -> None:
    place.create(1000, fail_mode=FailMode.REFUSE if mode is FailMode.PASS else FailMode.PASS)
    spoil(place)
    status, verdict = FAILED[mode]
    with talk(place, NODEAGENT_VGPU_FAIL_MODE=mode.name.lower()) as one:
        assert one.look()[:2] == (status, reason)
        assert one.reserve(1) == verdict


@pytest.mark.parametrize("said", ["", "REFUSE", "yes"])
def test_what_is_no_mode_passes(place: Place, said: str) -> None:
    with talk(place, NODEAGENT_VGPU_FAIL_MODE=said) as one:
        assert one.look()[:2] == (Status.PASSING, Reason.LIMITS_MISSING)


@pytest.mark.parametrize("mode", FailMode)
@pytest.mark.parametrize("content", [None, b"", b"x" * (128 + 256 * 576)])
def test_without_a_usage_file_nothing_can_be_counted(place: Place, mode: FailMode, content: bytes | None) -> None:
    """So the limits file says what is done; a file that is not of this format is not written into."""
    place.create(1000, fail_mode=mode)
    place.usage_path.unlink()
    if content is not None:
        place.usage_path.write_bytes(content)
    status, verdict = FAILED[mode]
    with talk(place) as one:
        assert one.look()[:2] == (status, Reason.USAGE_UNUSABLE)
        assert one.reserve(1) == verdict
    if content is not None:
        assert place.usage_path.read_bytes() == content


def test_files_that_come_late_are_found(place: Place) -> None:
    with talk(place) as one:
        assert one.look()[:2] == (Status.PASSING, Reason.LIMITS_MISSING)
        place.create(1000)
        wait_for(one, (Status.LIMITING, Reason.FINE, 1000))
        assert (one.reserve(1001), one.reserve(1000)) == ("denied", "granted")


def test_a_limit_changes_between_two_allocations(place: Place) -> None:
    """Lowered below what is held, it takes nothing away; nothing more is granted until enough was given back."""
    place.create(1000)
    with talk(place) as one:
        assert (one.reserve(900), one.reserve(200)) == ("granted", "denied")
        place.change(1100)
        assert one.reserve(200) == "granted"
        place.change(500)
        assert one.reserve(1) == "denied"
        assert place.read().sum_used(0) == 1100
        one.release(700)
        assert (one.reserve(101), one.reserve(100)) == ("denied", "granted")
        place.change(None)
        assert one.reserve(1 << 40) == "granted"
        assert one.look() == (Status.LIMITING, Reason.FINE, UNLIMITED)


def test_a_device_is_added_while_it_runs(place: Place) -> None:
    hexes = [uuid.UUID(each[4:]).hex for each in UUIDS]
    place.create(1000)
    with talk(place) as one:
        one.look()
        assert [one.ask(f"find {each}") for each in hexes] == ["0", "16"]
        place.change(1000, 50)
        assert one.ask("look").split()[2] == "2"
        assert [one.ask(f"find {each}") for each in hexes] == ["0", "1"]
        assert (one.reserve(51, 1), one.reserve(50, 1), one.reserve(1000)) == ("denied", "granted", "granted")


@pytest.mark.parametrize("spoil", [make_newer, break_slot, break_magic, leave_half_written])
def test_limits_that_were_whole_stay_while_the_file_is_damaged(place: Place, spoil: Callable[[Place], None]) -> None:
    """Whatever the fail mode: it is for limits that were never known. The file made whole is read at once."""
    place.create(1000, fail_mode=FailMode.REFUSE)
    with talk(place) as one:
        assert one.reserve(600) == "granted"
        whole = place.limits_path.read_bytes()
        place.overwrite(SEQUENCE_AT, b"\1")
        spoil(place)
        if spoil is not leave_half_written:
            place.overwrite(SEQUENCE_AT, b"\2")
        reason = Reason.LIMITS_NEWER if spoil is make_newer else Reason.LIMITS_DAMAGED
        assert one.look() == (Status.LIMITING, reason, 1000)
        assert (one.reserve(401), one.reserve(400)) == ("denied", "granted")
        assert place.read().processes[0].reason == reason
        place.overwrite(0, whole)
        place.overwrite(SEQUENCE_AT, b"\4")
        place.change(1001, fail_mode=FailMode.REFUSE)
        assert one.look() == (Status.LIMITING, Reason.FINE, 1001)
        assert (one.reserve(2), one.reserve(1)) == ("denied", "granted")


def test_no_half_of_a_change_is_ever_in_force(place: Place) -> None:
    """However often the writer writes under the reader."""
    low, high = 0x1111_1111_1111, 0x2222_2222_2222
    place.create(low)
    with talk(place) as one:
        one.say(f"watch {low} {high}")
        wanted = [high, low]
        until = time.monotonic() + 20
        while not select.select([one.answers], [], [], 0)[0]:
            assert time.monotonic() < until
            place.change(wanted[0])
            wanted.reverse()
        assert one.hear() == "0"


def test_says_nothing_unless_asked(place: Place) -> None:
    """The streams are the program's."""
    place.create(1000)
    for asked in ("0", "1"):
        with talk(place, NODEAGENT_VGPU_LOG=asked) as one:
            one.look()
            one.reserve(1001)
            said = one.end()
        assert ("refused 1001 bytes on device 0" in said, "status 1" in said) == (asked == "1", asked == "1")
        assert asked == "1" or said == ""


def test_relative_place_does_not_count(place: Place) -> None:
    """Where it leads to would be the program's to say."""
    place.create(1000)
    with talk(place, NODEAGENT_VGPU_DIR=".") as one:
        assert one.look()[:2] == (Status.PASSING, Reason.LIMITS_MISSING)


def test_usage_file_that_comes_late_is_found(place: Place) -> None:
    place.create(1000, fail_mode=FailMode.REFUSE)
    place.usage_path.unlink()
    with talk(place) as one:
        assert one.look()[:2] == (Status.REFUSING, Reason.USAGE_UNUSABLE)
        create_usage(place.usage_path)
        wait_for(one, (Status.LIMITING, Reason.FINE, 1000))
        assert one.reserve(1000) == "granted"
