"""Whose a process is among those who share a GPU, and what it comes to."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeagent.components.usage.measure import list_over, list_processes, list_unnamed, measure
from nodeagent.model.fractions import PodContainer
from nodeagent.model.gpu import Unreadable
from nodeagent.model.journal import Enforcement, FractionTable
from nodeagent.model.ports import ProcessPlace
from nodeagent.model.telemetry import NodeSample
from nodeagent.model.usage import FractionUsage
from tests.support.samples import make_inventory, make_uuid
from tests.unit.components.usage.builders import GIB, START, bind, name, place, run, sample, tabulate

Used = dict[tuple[str, str], tuple[int | None, int | None, tuple[int, ...]]]
NOTHING = (0, 0, ())
UNKNOWN = (None, None, ())


def look(
    table: FractionTable,
    now: NodeSample | None,
    places: Mapping[int, ProcessPlace] | None = None,
    names: Mapping[str, PodContainer] | None = None,
) -> FractionUsage:
    return measure(table, make_inventory(), now, places or {}, names or {})


def used(usage: FractionUsage, gpu: int = 0) -> Used:
    """Cores, GiB and processes on one GPU, by pod and container."""
    return {
        (one.pod.name, one.container): (
            part.cores_used,
            None if part.memory_used_bytes is None else part.memory_used_bytes // GIB,
            part.processes,
        )
        for one in usage.containers
        for part in one.parts
        if part.gpu == make_uuid(gpu)
    }


def test_processes_are_their_pods() -> None:
    """By the control group; what a process of the host or of another pod uses is nobody's here."""
    table = tabulate(bind(1, "a"), bind(2, "b"), bind(3, "c"))
    places = {10: place("a"), 11: place("a"), 12: place("b"), 13: ProcessPlace(), 14: place("stranger")}
    usage = look(table, sample(run(10), run(11, 5, 2), run(12, 40), run(13, 9), run(14, 9)), places)
    assert used(usage) == {("a", "main"): (15, 3, (10, 11)), ("b", "main"): (40, 1, (12,)), ("c", "main"): NOTHING}
    assert usage.time_seconds == START


def test_what_a_container_was_given_is_told_with_it() -> None:
    """Limits, identity, reason, and the GPU by its number."""
    binding = replace(bind(7, cores=20, gib=4, core_limit=60), enforcement=Enforcement.LIBRARY)
    (found,) = look(tabulate(binding), sample()).containers
    assert (found.number, found.pod, found.why) == (7, binding.pod, "share")
    assert (found.enforcement, found.since_seconds) == (Enforcement.LIBRARY, START - 60)
    (part,) = found.parts
    assert (part.index, part.cores, part.cores_max, part.memory_bytes) == (0, 20, 60, 4 * GIB)


def test_several_gpus_are_counted_each_for_itself() -> None:
    """A part of each; one that the sample lacks is not known, and one that is gone has no number."""
    now = NodeSample(
        time_seconds=START,
        gpus=(*sample(run(10, 70)).gpus, *sample(run(10, 30, 5), index=1).gpus),
    )
    usage = look(tabulate(bind(1, "a", gpus=(0, 1, 5))), now, {10: place("a")})
    assert used(usage)["a", "main"] == (70, 1, (10,))
    assert used(usage, 1)["a", "main"] == (30, 5, (10,))
    assert used(usage, 5)["a", "main"] == UNKNOWN
    assert [part.index for part in usage.containers[0].parts] == [0, 1, None]


def test_containers_of_one_pod_are_told_apart_by_name() -> None:
    """The id in the control group is the runtime's; its name says which container it is."""
    table = tabulate(bind(1, "a", "left"), bind(2, "a", "right"))
    places = {10: place("a", "l"), 11: place("a", "r"), 12: place("a", "debug")}
    names = {"l": name("a", "left"), "r": name("a", "right"), "debug": name("a", "debugger")}
    usage = look(table, sample(run(10), run(11, 30), run(12, 50)), places, names)
    assert used(usage) == {("a", "left"): (10, 1, (10,)), ("a", "right"): (30, 1, (11,))}
    assert usage.undivided == ()


def test_what_cannot_be_divided_is_told_of_the_pod() -> None:
    """While the runtime has not said whose an id is: no container is said to use it, or to use nothing."""
    table = tabulate(bind(1, "a", "left"), bind(2, "a", "right"), bind(3, "b"))
    places = {10: place("a", "l"), 11: place("a", "r"), 12: place("b")}
    usage = look(table, sample(run(10), run(11, 30), run(12)), places, {"l": name("a", "left")})
    assert used(usage) == {
        ("a", "left"): (None, None, (10,)),
        ("a", "right"): UNKNOWN,
        ("b", "main"): (10, 1, (12,)),
    }
    (rest,) = usage.undivided
    assert (rest.pod.name, rest.containers, rest.index) == ("a", ("left", "right"), 0)
    assert (rest.cores_used, rest.memory_used_bytes, rest.processes) == (30, GIB, (11,))


def test_a_pod_without_uid_is_found_by_its_name() -> None:
    """The kubelet does not always tell the uid."""
    table = tabulate(bind(1, "a", uid=""), bind(2, "b", uid=""))
    now, places = sample(run(10)), {10: place("a", "l")}
    assert used(look(table, now, places, {"l": name("a", "main")}))["a", "main"] == (10, 1, (10,))
    assert used(look(table, now, places, {"l": name("x", "main")})) == {("a", "main"): NOTHING, ("b", "main"): NOTHING}
    alone = tabulate(bind(1, "a", uid=""))
    assert used(look(alone, now, places))["a", "main"] == (10, 1, (10,)), "who else"
    assert used(look(tabulate(bind(1, "b")), now, places))["b", "main"] == NOTHING


def test_processes_out_of_sight_are_theirs_who_have_the_gpu_alone() -> None:
    """Without the host's processes nothing tells the pod; among several that would be a guess."""
    now = sample(run(10), run(11))
    assert used(look(tabulate(bind(1, "a")), now))["a", "main"] == (20, 2, (10, 11))
    two = tabulate(bind(1, "a"), bind(2, "b"))
    assert used(look(two, now)) == {("a", "main"): UNKNOWN, ("b", "main"): UNKNOWN}
    ended = look(two, now, {10: place("a")})
    assert used(ended) == {("a", "main"): (10, 1, (10,)), ("b", "main"): NOTHING}, "the other has just ended"
    assert used(look(two, sample())) == {("a", "main"): NOTHING, ("b", "main"): NOTHING}


@pytest.mark.parametrize("now", [None, sample(run(10), index=1), sample(run(10), lost="gone")])
def test_a_gpu_that_was_not_read_tells_nothing(now: NodeSample | None) -> None:
    """Absence is not zero."""
    usage = look(tabulate(bind(1, "a")), now, {10: place("a")})
    assert used(usage)["a", "main"] == UNKNOWN
    assert usage.time_seconds == (0.0 if now is None else START)


def test_processes_that_cannot_be_read_tell_nothing() -> None:
    """Refused, or asked in vain."""
    (gpu,) = sample(run(10)).gpus
    for changed in (
        replace(gpu, silent=True),
        replace(gpu, unreadable=(Unreadable(what="fan", reason="none"), Unreadable(what="processes", reason="no"))),
    ):
        usage = look(tabulate(bind(1, "a")), NodeSample(time_seconds=START, gpus=(changed,)), {10: place("a")})
        assert used(usage)["a", "main"] == UNKNOWN


def test_a_reading_that_one_process_lacks_is_not_known_of_all() -> None:
    """The others are still told: a driver may give memory and no time."""
    usage = look(tabulate(bind(1, "a")), sample(run(10, None), run(11)), {10: place("a"), 11: place("a")})
    assert used(usage)["a", "main"] == (None, 2, (10, 11))
    usage = look(tabulate(bind(1, "a")), sample(run(10, 1, None), run(11)), {10: place("a"), 11: place("a")})
    assert used(usage)["a", "main"] == (11, None, (10, 11))


def test_nobody_uses_more_than_all_of_a_gpu() -> None:
    """Windows of processes overlap; their sum may say more."""
    usage = look(tabulate(bind(1, "a")), sample(run(10, 80), run(11, 70)), {10: place("a"), 11: place("a")})
    assert used(usage)["a", "main"] == (100, 2, (10, 11))


def test_without_an_inventory_gpus_have_no_number() -> None:
    (found,) = measure(tabulate(bind(1)), None, None, {}, {}).containers
    assert [part.index for part in found.parts] == [None]


def test_only_processes_on_shared_gpus_are_looked_up() -> None:
    """A GPU that is given whole is somebody else's business."""
    now = NodeSample(time_seconds=START, gpus=(*sample(run(11), run(10)).gpus, *sample(run(12), index=1).gpus))
    assert list_processes(tabulate(bind(1)), now) == (10, 11)


def test_a_name_is_asked_for_where_the_pod_does_not_say_enough() -> None:
    """Two containers of a pod on one GPU, or a pod without uid."""
    places = {10: place("a", "x"), 11: place("b", "y"), 12: ProcessPlace(container_id="host"), 13: place("a", "")}
    now = sample(run(10), run(11), run(12), run(13), run(14))
    two = tabulate(bind(1, "a", "left"), bind(2, "a", "right"), bind(3, "b"))
    assert list_unnamed(two, now, places, {}) == {"x"}
    assert list_unnamed(two, now, places, {"x": name("a", "left")}) == frozenset()
    assert list_unnamed(tabulate(bind(1, "a"), bind(3, "b")), now, places, {}) == frozenset()
    assert list_unnamed(tabulate(bind(1, "a", uid="")), now, places, {}) == {"x", "y"}
    assert list_unnamed(tabulate(bind(1, "a", gpus=(1,))), now, places, {}) == frozenset()


@given(
    pods=st.lists(st.sampled_from("abc"), min_size=1, max_size=6),
    owners=st.lists(st.sampled_from([*"abcx", ""]), max_size=12),
    named=st.booleans(),
)
def test_no_process_is_counted_twice(pods: list[str], owners: list[str], named: bool) -> None:
    """Whatever is known: each is one container's, one pod's, or nobody's."""
    table = tabulate(*(bind(number, pod, f"c{number}") for number, pod in enumerate(pods)))
    places = {pid: place(pod, f"id-{pid}") if pod else ProcessPlace() for pid, pod in enumerate(owners)}
    names = {f"id-{pid}": name(pod, f"c{pid}") for pid, pod in enumerate(owners)} if named else {}
    usage = look(table, sample(*(run(pid) for pid in places)), places, names)
    counted = [pid for one in usage.containers for part in one.parts for pid in part.processes]
    counted += [pid for one in usage.undivided for pid in one.processes]
    assert len(counted) == len(set(counted))
    assert set(counted) <= set(places)
    if not named:
        assert set(counted) == {pid for pid, pod in enumerate(owners) if pod in pods}


def test_who_has_more_memory_than_its_part_is_named() -> None:
    """By what the driver counts, and only where that is known."""
    table = tabulate(bind(1, "a", gib=8), bind(2, "b", gib=8), bind(3, "c", gib=8))
    now = sample(run(11, gib=9), run(12, gib=8), run(13, gib=None))
    over = list_over(look(table, now, {11: place("a"), 12: place("b"), 13: place("c")}))
    assert over == {f"1 {make_uuid(0)}": "ml/a (main) uses 9 GiB of 8 GiB of GPU 0, enforcement advise"}
    gone = measure(tabulate(bind(1, "a")), None, sample(run(11, gib=9)), {11: place("a")}, {})
    assert f"of {make_uuid(0)}, enforcement" in next(iter(list_over(gone).values()))
