"""The ledger of a container: never a byte too much among its processes, and nothing kept for the dead."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodeagent.edge.host.vgpu.layout import PROCESS
from nodeagent.edge.host.vgpu.usage_file import Reason, Status
from tests.component.vgpu.build import build_ledger_program
from tests.component.vgpu.place import Place
from tests.component.vgpu.talk import Talk, talk
from tests.support.programs.namespaces import FIRST_OF_A_CONTAINER, needs_namespaces, needs_proc_mounts

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler: apt-get install gcc"),
    pytest.mark.may_block("nothing here runs on an event loop"),
]


PATIENCE_SECONDS = 20.0
NO_PROC = 'mount -t tmpfs none /proc && exec "$@"'


@contextmanager
def hold(place: Place, size: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that has reserved so many bytes and lives on, and what came of it."""
    program = [str(build_ledger_program("ledger_race")), "hold", str(size)]
    with subprocess.Popen(program, env=place.environ(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def race(place: Place, *, processes: int, threads: int, milliseconds: int, limit: int) -> list[str]:
    words = [str(place.path / "judge"), str(threads), str(milliseconds), str(limit)]
    running = [
        subprocess.Popen(
            [build_ledger_program("ledger_race"), *words], env=place.environ(), stdout=subprocess.PIPE, text=True
        )
        for _ in range(processes)
    ]
    said = [process.communicate()[0].strip() for process in running]
    assert [process.returncode for process in running] == [0] * processes, said
    return said


@pytest.mark.long
@pytest.mark.parametrize("limit", [1000, 1 << 40])
def test_processes_and_threads_never_pass_the_limit_together(place: Place, limit: int) -> None:
    """And at the end nothing is charged any more, though some had to wait for others."""
    place.create(limit)
    said = race(place, processes=4, threads=4, milliseconds=700, limit=limit)
    assert all("passed 0" in line and "granted 0 " not in line for line in said)
    assert place.read().sum_used(0) == 0


@pytest.mark.nightly
def test_a_minute_of_it(place: Place) -> None:
    """With as many threads as a large program has."""
    place.create(1 << 30)
    race(place, processes=4, threads=64, milliseconds=60_000, limit=1 << 30)
    assert place.read().sum_used(0) == 0


@pytest.mark.long
def test_what_is_held_is_in_the_usage_file(place: Place) -> None:
    """With the process that holds it; the last byte is granted, the next one refused."""
    place.create(1000)
    with hold(place, 999) as (first, one), hold(place, 2) as (_, two), hold(place, 1) as (third, three):
        assert (one, two, three) == ("granted", "denied", "granted")
        usage = place.read()
        assert usage.sum_used(0) == 1000
        assert [process.shares[0].refusals for process in usage.processes] == [0, 1, 0]
        assert [usage.processes[0].pid, usage.processes[2].pid] == [first.pid, third.pid]
        assert {process.pid_namespace for process in usage.processes} == {Path("/proc/self/ns/pid").stat().st_ino}
        assert all(process.heartbeat_ns and process.start_ticks for process in usage.processes)
        assert {(process.status, process.reason) for process in usage.processes} == {(Status.LIMITING, Reason.FINE)}


@pytest.mark.long
def test_share_of_a_killed_process_comes_back(place: Place) -> None:
    """Also before anybody has waited for it."""
    place.create(1000)
    with hold(place, 600) as (first, one), hold(place, 300) as (second, _):
        assert one == "granted"
        os.kill(first.pid, signal.SIGKILL)
        os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)
        with hold(place, 700) as (third, verdict):
            assert verdict == "granted"
            assert {process.pid for process in place.read().processes} == {second.pid, third.pid}
            assert place.read().sum_used(0) == 1000
            with hold(place, 1) as (_, more):
                assert more == "denied"


@needs_namespaces
@pytest.mark.parametrize("mount", ["", pytest.param("--mount-proc", marks=needs_proc_mounts)])
def test_the_living_keep_theirs_in_a_namespace_of_their_own(place: Place, mount: str) -> None:
    """Also where a sandbox leaves the outer one's /proc in it, which tells of other processes."""
    place.create(1000)
    first, second = place.path / "first", place.path / "second"
    hold = f"timeout 20 {build_ledger_program('ledger_race')} hold 600"
    wait = "while ! [ -s {} ]; do sleep 0.01; done"
    script = f"{hold} > {first} & {wait.format(first)}; {hold} > {second} & {wait.format(second)}; kill 0"
    command = [*FIRST_OF_A_CONTAINER, *mount.split(), "setsid", "sh", "-c", script]
    subprocess.run(command, env=place.environ(), check=False, timeout=30)
    assert (first.read_text(), second.read_text()) == ("granted\n", "denied\n")


def reserve_soon(one: Talk, size: int) -> str:
    """The verdict once what was killed has ended: of a container that takes a moment."""
    until = time.monotonic() + PATIENCE_SECONDS
    while (verdict := one.reserve(size)) == "denied" and time.monotonic() < until:
        time.sleep(0.01)
    return verdict


@needs_namespaces
@pytest.mark.parametrize(
    "front",
    [
        pytest.param((*FIRST_OF_A_CONTAINER, "--mount-proc"), marks=needs_proc_mounts, id="own proc"),
        pytest.param(FIRST_OF_A_CONTAINER, id="proc of the host"),
        pytest.param((*FIRST_OF_A_CONTAINER, "--mount", "sh", "-c", NO_PROC, "-"), id="no proc"),
    ],
)
def test_each_life_of_a_container_finds_its_memory_free(place: Place, front: Sequence[str]) -> None:
    """Whatever ended the one before, and though nobody took back what it had: ten times most of the limit."""
    place.create(1000)
    for _ in range(10):
        # Beside it another container of the pod, which shares the claim.
        with talk(place, front=front) as one, talk(place, front=front) as other:
            assert reserve_soon(one, 900) == "granted"
            assert other.reserve(200) == "denied"
            one.kill()


@needs_namespaces
def test_the_end_of_one_container_takes_nothing_from_the_other(place: Place) -> None:
    """Both share a claim, and neither sees the processes of the other."""
    place.create(1000)
    with talk(place, front=FIRST_OF_A_CONTAINER) as first:
        assert first.reserve(600) == "granted"
        for _ in range(3):
            with talk(place, front=FIRST_OF_A_CONTAINER) as second:
                assert reserve_soon(second, 300) == "granted"
        with talk(place, front=FIRST_OF_A_CONTAINER) as third:
            assert third.reserve(500) == "denied"


@needs_namespaces
def test_a_process_that_closes_its_descriptors_keeps_its_memory(place: Place) -> None:
    """Daemons do that: to another container of the claim it lives as before, and when it has ended that is seen."""
    place.create(1000)
    with talk(place, front=FIRST_OF_A_CONTAINER) as first:
        assert first.reserve(900) == "granted"
        assert first.ask("close") == "closed"
        with talk(place, front=FIRST_OF_A_CONTAINER) as second:
            assert (second.reserve(101), second.reserve(100)) == ("denied", "granted")
            first.kill()
            assert reserve_soon(second, 900) == "granted"


def test_every_slot_taken_is_what_the_fail_mode_says(place: Place) -> None:
    """Slots of a namespace that cannot be looked into are not given away."""
    place.create(1000)
    content = bytearray(place.usage_path.read_bytes())
    size = PROCESS.size
    for number in range(256):
        start = 128 + number * size
        content[start : start + 16] = (1 << 62 | 1 << 40 | 1).to_bytes(8, "little") + (7).to_bytes(8, "little")
    place.usage_path.write_bytes(content)
    with hold(place, 10) as (_, verdict):
        assert verdict == "uncounted"
    after = place.usage_path.read_bytes()
    assert int.from_bytes(after[44:48], "little") == Reason.NO_SLOT
