"""A child has nothing of its parent's memory on the devices; a new image of a process has nothing of its old one's."""

import os
import shutil
import signal
from collections.abc import Callable

import pytest

from nodeagent.edge.host.vgpu.layout import LIMITS_HEADER
from tests.component.vgpu.cuda_talk import OUT
from tests.component.vgpu.limited import limit
from tests.component.vgpu.place import Place
from tests.component.vgpu.talk import Talk, talk
from tests.fakes.cuda.driver import FakeDriver

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler: apt-get install gcc"),
    pytest.mark.may_block("nothing here runs on an event loop"),
]


def list_replicas(place: Place) -> dict[int, int]:
    return {process.pid: process.shares[0].used_bytes for process in place.read().processes}


def ask_pid(one: Talk) -> int:
    return int(one.ask("who"))


def test_a_child_has_a_slot_of_its_own(place: Place) -> None:
    """What it releases is not taken from its parent's share, and what it leaves behind comes back."""
    place.create(1000)
    with talk(place) as one:
        parent = ask_pid(one)
        assert one.reserve(600) == "granted"
        assert one.ask("fork") == "child"
        child = ask_pid(one)
        assert child != parent
        one.release(600)
        assert list_replicas(place) == {parent: 600}
        assert (one.reserve(401), one.reserve(400)) == ("denied", "granted")
        assert list_replicas(place) == {parent: 600, child: 400}
        assert one.ask("end") == "parent"
        assert one.reserve(400) == "granted"
        assert list_replicas(place) == {parent: 1000}
        one.release(600)
        assert one.ask("used 0") == "400"


def test_a_child_that_lives_on_keeps_nothing_of_its_parent(place: Place) -> None:
    """As the workers of a program that was killed do."""
    place.create(1000)
    with talk(place) as one:
        assert one.reserve(900) == "granted"
        child = int(one.ask("leave"))
        try:
            one.kill()
            with talk(place) as other:
                assert other.reserve(900) == "granted"
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_child_of_a_child(place: Place) -> None:
    place.create(1000)
    with talk(place) as one:
        pids = [ask_pid(one)]
        for _ in range(2):
            assert one.reserve(300) == "granted"
            assert one.ask("fork") == "child"
            pids.append(ask_pid(one))
        assert (one.reserve(401), one.reserve(400)) == ("denied", "granted")
        assert list_replicas(place) == dict(zip(pids, (300, 300, 400), strict=True))


def test_exec_begins_anew_in_the_same_slot(place: Place) -> None:
    """The driver has let go of everything; pid and start time are those of before."""
    place.create(1000)
    with talk(place) as one:
        pid = ask_pid(one)
        assert one.reserve(1000) == "granted"
        one.say("exec")
        assert ask_pid(one) == pid
        assert list_replicas(place) == {pid: 0}
        assert (one.reserve(1001), one.reserve(1000)) == ("denied", "granted")
        assert list_replicas(place) == {pid: 1000}
        assert place.read().processes[0].shares[0].refusals == 1


def leave_nothing(place: Place) -> None:
    """No files."""


def leave_whole(place: Place) -> None:
    place.create(1 << 30)


def leave_half_written(place: Place) -> None:
    """Reading takes long, and no slot is ever had."""
    place.create(1 << 30)
    place.usage_path.unlink()
    place.overwrite(LIMITS_HEADER.offsets["sequence"], b"\1")


@pytest.mark.parametrize("context_bytes", [0, 100])
def test_a_program_without_the_driver_has_nothing_of_what_was_there_before_it(
    place: Place, driver: FakeDriver, context_bytes: int
) -> None:
    """One that looks at the devices and becomes another, which only starts the programs that work."""
    place.create(1000, context_bytes=context_bytes)
    with limit(place, driver) as one, limit(place, driver) as two:
        assert one.call("cuMemAlloc_v2", OUT, 700)[0] == 0
        one.say("become cat")
        assert one.ask("hello") == "hello"
        assert two.call("cuMemAlloc_v2", OUT, 800)[0] == 0
        assert sorted(list_replicas(place).values()) == [0, 800 + context_bytes]
        assert one.ask("still here") == "still here"


@pytest.mark.long
@pytest.mark.parametrize("leave", [leave_nothing, leave_whole, leave_half_written])
def test_a_fork_in_the_middle_of_other_threads_work(place: Place, leave: Callable[[Place], None]) -> None:
    """No lock that another thread of the parent held keeps the child from going on."""
    leave(place)
    with talk(place) as one:
        assert one.ask("forks 200") == "200"
