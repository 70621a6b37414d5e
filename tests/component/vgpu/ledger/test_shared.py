"""Containers that share one claim: each has a usage file of its own, and all together hold to the claim's limit."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from nodeagent.edge.host.vgpu.limits_file import FailMode
from nodeagent.edge.host.vgpu.usage_file import Reason, Status, read_usage
from tests.component.vgpu.build import build_ledger_program
from tests.component.vgpu.place import Place
from tests.component.vgpu.talk import Talk, talk

pytestmark = pytest.mark.may_block("nothing here runs on an event loop")
LIMIT = 1000
SECOND = 1_000_000_000
AHEAD = 2_000_000
"""What is paid for at once, so that not every launch takes system calls."""


def read_due(place: Place) -> int:
    """From when on the next launch may go, of the first device."""
    return int.from_bytes((place.path / "shared").read_bytes()[:8], "little")


@pytest.fixture
def places(tmp_path: Path) -> tuple[Place, Place]:
    first, second = (Place(tmp_path / name) for name in ("first", "second"))
    for each in (first, second):
        each.path.mkdir()
    first.create_shared(LIMIT, None)
    second.share_with(first)
    return first, second


@contextmanager
def two(places: tuple[Place, Place]) -> Iterator[tuple[Talk, Talk]]:
    with ExitStack() as stack:
        first, second = (stack.enter_context(talk(place)) for place in places)
        for each in (first, second):
            assert each.look()[:2] == (Status.LIMITING, Reason.FINE)
        yield first, second


def test_the_limit_holds_over_all_containers(places: tuple[Place, Place]) -> None:
    """What one has the others cannot; what it gives back they can."""
    with two(places) as (one, other):
        assert one.reserve(700) == "granted"
        assert other.reserve(301) == "denied"
        assert other.reserve(300) == "granted"
        assert one.ask("used 0") == other.ask("used 0") == "1000"
        one.release(100)
        assert other.ask("used 0") == "900"
        assert other.reserve(101) == "denied"
        assert other.reserve(100) == "granted"
        assert one.reserve(5_000, slot=1) == other.reserve(5_000, slot=1) == "granted", "no limit there"


def test_each_container_has_a_file_of_its_own(places: tuple[Place, Place]) -> None:
    """Whole, with all of its place, for whichever user; nothing else is left beside it."""
    with two(places) as (one, other):
        assert one.reserve(10) == "granted"
        assert other.reserve(20) == "granted"
        for place, used in zip(places, (10, 20), strict=True):
            file = place.path / "own/usage"
            assert [each.name for each in (place.path / "own").iterdir()] == ["usage"]
            assert read_usage(file).sum_used(0) == used
            status = file.stat()
            assert status.st_mode & 0o777 == 0o666
            assert status.st_blocks * 512 >= status.st_size
    assert not os.path.lexists(places[0].usage_path)


def test_many_processes_at_once_make_one_file(places: tuple[Place, Place]) -> None:
    """All count in it, and whoever comes later."""
    place = places[0]
    with ExitStack() as stack:
        processes = [stack.enter_context(talk(place)) for _ in range(24)]
        for each in processes:
            each.say("reserve 0 1")
        assert [each.hear() for each in processes] == ["granted"] * 24
        assert read_usage(place.path / "own/usage").sum_used(0) == 24
        assert processes[0].ask("used 0") == "24"
        assert [each.name for each in (place.path / "own").iterdir()] == ["usage"]


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="only root mounts")
def test_those_that_find_no_room_for_theirs_wait_for_another(places: tuple[Place, Place]) -> None:
    """In memory for two such files, of which each process makes one first."""
    place, count = places[0], 24
    hold = f"timeout --foreground 30 {build_ledger_program('ledger_race')} hold 1"
    script = (
        f"mount -t tmpfs -o size=300k none {place.path}/own; cd {place.path};"
        f"for n in $(seq {count}); do {hold} > said-$n & done;"
        f"for n in $(seq {count}); do while ! [ -s said-$n ]; do sleep 0.01; done; done; cat said-*; ls own; kill 0"
    )
    command = ["unshare", "--mount", "setsid", "--wait", "sh", "-c", script]
    done = subprocess.run(command, env=place.environ(), capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "granted\n" * count + "usage\n", done.stderr


@pytest.mark.parametrize("name", ["own/usage", "shared"])
@pytest.mark.parametrize("harm", ["cut", "garble", "remove"])
def test_what_one_does_to_its_files_is_nothing_of_the_others(places: tuple[Place, Place], name: str, harm: str) -> None:
    """They live on, and what each has counts as before, also for those who start later."""
    with two(places) as (mean, other):
        assert mean.reserve(400) == "granted"
        assert other.reserve(300) == "granted"
        assert mean.ask(f"{harm} {name}") == "done"
        assert other.reserve(301) == "denied"
        assert other.ask("used 0") == "700"
        with talk(places[1]) as later:
            assert later.reserve(301) == "denied"
            assert later.reserve(300) == "granted"
            later.end()
        other.release(300)
        assert other.reserve(600) == "granted"
        assert other.reserve(1) == "denied"
        mean.kill()
        assert other.reserve(400) == "granted"
        assert other.ask("used 0") == "1000"


def test_who_takes_all_locks_has_all_that_is_left_and_no_more(places: tuple[Place, Place]) -> None:
    """As one that has taken the memory itself; with its end that is over, and nobody's own was ever hidden."""
    with two(places) as (mean, other):
        assert other.reserve(300) == "granted"
        assert mean.ask("grab") == "done"
        assert other.reserve(1) == "denied"
        with talk(places[0]) as third:
            assert third.reserve(1) != "granted"
        other.release(100)
        assert other.reserve(100) == "denied"
        mean.kill()
        assert other.ask("used 0") == "200"
        with talk(places[0]) as third:
            assert third.reserve(801) == "denied"
            assert third.reserve(800) == "granted"


@pytest.mark.parametrize("fail_mode", list(FailMode))
def test_without_a_number_it_does_what_it_does_without_a_slot(tmp_path: Path, fail_mode: FailMode) -> None:
    place = Place(tmp_path)
    place.create_shared(LIMIT, fail_mode=fail_mode)
    with talk(place) as mean, talk(place) as other:
        assert mean.ask("grab") == "done"
        assert other.reserve(1) == ("denied" if fail_mode is FailMode.REFUSE else "uncounted")


def test_a_process_that_ends_gives_back_what_it_had(places: tuple[Place, Place]) -> None:
    """However it ends: killed, by itself, by another image, with a child that lives on."""
    with two(places) as (one, other):
        for way in ("kill", "end", "exec", "leave"):
            with talk(places[0]) as process:
                assert process.reserve(LIMIT) == "granted"
                assert other.reserve(1) == "denied"
                if way == "exec":
                    process.say("exec")
                    assert process.ask("used 0") == "0"
                elif way == "leave":
                    child = int(process.ask("leave"))
                    process.kill()
                    assert other.reserve(1) == "granted"
                    other.release(1)
                    os.kill(child, 9)
                else:
                    process.kill() if way == "kill" else process.end()
                assert other.ask("used 0") == "0", way
        assert one.reserve(LIMIT) == "granted"


def test_the_child_of_a_fork_has_nothing_of_its_parents(places: tuple[Place, Place]) -> None:
    """It counts for itself, and its end takes nothing of its parent's."""
    with two(places) as (one, other):
        assert one.reserve(600) == "granted"
        assert one.ask("fork") == "child"
        assert one.reserve(401) == "denied"
        assert one.reserve(400) == "granted"
        assert other.ask("used 0") == "1000"
        one.say("end")
        assert one.hear() == "parent"
        assert other.ask("used 0") == "600"
        one.release(600)
        assert other.ask("used 0") == "0"


def test_a_program_that_closes_all_descriptors_keeps_what_it_has(places: tuple[Place, Place]) -> None:
    """It counts on as it did, by a descriptor of its own again."""
    with two(places) as (one, other):
        assert one.reserve(600) == "granted"
        for _ in range(3):
            assert one.ask("close") == "closed"
            assert other.ask("used 0") == "600"
            assert one.reserve(100) == "granted"
            assert other.ask("used 0") == "700"
            assert other.reserve(301) == "denied"
            one.release(100)
            assert other.ask("used 0") == "600"
        one.kill()
        assert other.ask("used 0") == "0"


def test_compute_is_shared_as_memory_is(tmp_path: Path) -> None:
    """Who comes second waits for what the first has paid for; what somebody cuts off or spoils holds nobody up."""
    places = first, second = tuple(Place(tmp_path / name) for name in ("first", "second"))
    for each in places:
        each.path.mkdir()
    first.create_shared(LIMIT, cores=50)
    second.share_with(first)
    with two((first, second)) as (one, other):
        for harm in ("cut", "garble"):
            one.ask(f"pay 0 {60 * SECOND}")
            paid = read_due(first)
            with talk(second) as waiting:
                waiting.say("pay 0 1000")
                while (now := read_due(first)) == paid:
                    time.sleep(0.001)
                assert now == paid + 2 * 1000 + AHEAD
            assert one.ask(f"{harm} shared") == "done"
            other.ask("pay 0 1000")


def test_the_child_of_a_fork_pays_for_itself(places: tuple[Place, Place]) -> None:
    """What its parent has paid ahead for is its parent's."""
    first, _ = places
    first.change(LIMIT, None, cores=50)
    with two(places) as (one, _):
        one.ask("pay 0 1000")
        paid = read_due(first)
        one.ask("pay 0 1000")
        assert read_due(first) == paid, "it was paid for already"
        assert one.ask("fork") == "child"
        one.ask("pay 0 1000")
        assert read_due(first) > paid


@pytest.mark.long
@pytest.mark.parametrize("limit", [1000, 1 << 40])
def test_containers_never_pass_the_limit_together(tmp_path: Path, limit: int) -> None:
    """Two processes of each with threads that reserve and release at random, and all of it is free at the end."""
    places = first, second = tuple(Place(tmp_path / name) for name in ("first", "second"))
    for each in places:
        each.path.mkdir()
    first.create_shared(limit)
    second.share_with(first)
    program, words = build_ledger_program("ledger_race"), [str(tmp_path / "judge"), "4", "700", str(limit)]
    running = [
        subprocess.Popen([program, *words], env=place.environ(), stdout=subprocess.PIPE, text=True)
        for place in (*places, *places)
    ]
    said = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0] * 4, said
    assert all("passed 0" in line and "granted 0 " not in line for line in said), said
    with two((first, second)) as (one, other):
        assert one.reserve(limit) == "granted"
        assert other.ask("used 0") == str(limit)
