"""What programs use of GPUs in parts that were given nothing of them."""

import pytest
from msgspec.structs import replace

from nodeagent.components.fractions.foreign import (
    ForeignProcess,
    describe_foreign,
    find_foreign,
    list_unnamed_pods,
    sum_foreign,
)
from nodeagent.model.gpu import Gpu, Unreadable
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Binding
from nodeagent.model.ports import ProcessPlace
from tests.support.samples import make_inventory, make_uuid
from tests.unit.components.usage.builders import GIB, bind, place, run, sample, tabulate

GPUS: tuple[Gpu, ...] = make_inventory().gpus
PLACES = {
    10: place("a"),
    11: place("stranger"),
    12: ProcessPlace(name="python3"),
    13: ProcessPlace(name="nvidia-cuda-mps"),
}
IGNORED = ("nvidia-cuda-mps-server",)


def find(
    *pids: int, bindings: tuple[Binding, ...] = (bind(1, "a"),), gpus: tuple[Gpu, ...] = GPUS
) -> dict[GpuUuid, int]:
    return sum_foreign(find_foreign(gpus, tabulate(*bindings), sample(*map(run, pids)), PLACES, IGNORED))


def use(pid: int, gib: int, pod: str = "", name: str = "") -> ForeignProcess:
    return ForeignProcess(GPUS[0], pid, replace(place(pod) if pod else ProcessPlace(), name=name), gib * GIB)


@pytest.mark.parametrize(
    ("pids", "gibibytes"),
    [
        ((10,), None),
        ((10, 11), 1),
        ((12,), 1),
        ((11, 12, 10), 2),
        ((13,), None),
        ((99,), None),
        ((), None),
    ],
    ids=["ours", "of another pod", "of the host", "of both", "that is ignored", "that nobody sees", "none"],
)
def test_who_was_given_nothing_is_counted(pids: tuple[int, ...], gibibytes: int | None) -> None:
    assert find(*pids) == ({} if gibibytes is None else {make_uuid(0): gibibytes * GIB})


def test_a_gpu_that_nobody_has_is_looked_at_too() -> None:
    assert find(11, bindings=()) == {make_uuid(0): GIB}
    assert find(11, bindings=(), gpus=()) == {}


def test_while_a_pod_is_not_known_nothing_is_said_of_its_gpu() -> None:
    assert find(11, bindings=(bind(1, "a", uid=""),)) == {}


def test_small_changes_are_the_same() -> None:
    """Each is told to all schedulers; what says no memory is there all the same."""
    for used, expected in ((None, 0), (1, 256 << 20), (256 << 20, 256 << 20), ((256 << 20) + 1, 512 << 20)):
        process = replace(run(11), memory_used_bytes=used)
        assert sum_foreign(find_foreign(GPUS, tabulate(), sample(process), PLACES, ())) == {make_uuid(0): expected}


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ([use(12, 20, name="python3")], "python3 of the host (pid 12) uses 20 GiB"),
        ([use(11, 1, "stranger")], "a process of pod ml/stranger (pid 11) uses 1 GiB"),
        ([use(11, 1, "unnamed")], "a process of pod u-unnamed (pid 11) uses 1 GiB"),
        (
            [use(1, 1, name="a"), use(2, 3, name="b"), use(3, 0, name="c")],
            "b of the host (pid 2) uses 3 GiB; a of the host (pid 1) uses 1 GiB",
        ),
        (
            [use(pid, 1, name="x") for pid in range(5)],
            "; ".join(f"x of the host (pid {pid}) uses 1 GiB" for pid in range(3)) + "; and 2 more",
        ),
    ],
    ids=["of the host", "of a pod", "of a pod without name", "the largest first", "of many"],
)
def test_people_are_told_who_it_is(found: list[ForeignProcess], told: str) -> None:
    assert describe_foreign(found, {"u-stranger": "ml/stranger"}) == {make_uuid(0): f"GPU 0: {told}"}


def test_who_uses_no_memory_bothers_nobody() -> None:
    """Agents that monitor GPUs hold them open so, and of some the driver does not say what they use."""
    found = [use(12, 0, name="dcgm"), use(11, 0, "stranger")]
    assert describe_foreign(found, {}) == {}
    assert list_unnamed_pods(found, {}) == frozenset()


def test_a_name_is_asked_for_only_of_pods_that_are_told_of() -> None:
    found = [use(12, 1, name="python3"), use(11, 1, "stranger"), use(10, 1, "known")]
    assert list_unnamed_pods(found, {"u-known": "ml/known"}) == {"u-stranger"}


@pytest.mark.parametrize(("pids", "pod", "found"), [((), "z", {11}), ((12,), "z", {11, 12}), ((), "stranger", set())])
def test_who_was_seen_stays_while_the_gpu_does_not_tell(pids: tuple[int, ...], pod: str, found: set[int]) -> None:
    """Beside those that are seen; one that was given a part meanwhile is no stranger any more."""
    (gpu,) = sample(*map(run, pids)).gpus
    now = replace(sample(), gpus=(replace(gpu, unreadable=(Unreadable(what="processes", reason="no"),)),))
    before = (use(11, 1, pod="stranger"),)
    assert {one.pid for one in find_foreign(GPUS, tabulate(bind(1, pod)), now, PLACES, IGNORED, before)} == found
