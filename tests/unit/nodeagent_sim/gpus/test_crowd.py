"""Containers with parts of simulated GPUs: what they use, whose their processes are, and how they misbehave."""

import pytest
from msgspec.structs import replace

from nodeagent.model.ports import ProcessPlace
from nodeagent.model.telemetry import GpuSample
from nodeagent_sim.gpus.containers import FractionWork
from nodeagent_sim.gpus.faults import apply_fault
from nodeagent_sim.gpus.hardware import MIB
from nodeagent_sim.gpus.profile import load_profile
from nodeagent_sim.gpus.sample import render_sample
from nodeagent_sim.gpus.world import FOREIGN_PID, World

DGX = load_profile("dgx-h100")


@pytest.fixture
def world() -> World:
    world = World(DGX)
    world.set_holders({})
    return world


def work(world: World, name: str, cores: int = 30, memory_mib: int = 8192, index: int = 0) -> FractionWork:
    return FractionWork(
        pod=f"ml/{name}", pod_uid=f"uid-{name}", container="main", folder=f"p-{name}",
        gpu=world.gpus[index].uuid, cores=cores, memory_mib=memory_mib,
    )  # fmt: skip


def look(world: World, index: int = 0) -> GpuSample:
    return render_sample(world, 0.0).gpus[index]


def fault(world: World, line: str) -> str:
    name, *arguments = line.split()
    return apply_fault(world, name, arguments).sentence


def test_containers_use_about_what_they_asked_for_and_never_more(world: World) -> None:
    """Each has a process of its own, and the GPU shows the sum of them; the others rest."""
    small, large = work(world, "small", 20, 4096), work(world, "large", 60, 32_768)
    world.set_works((small, large))
    peaks = {small: 0, large: 0}
    for second in range(1, 200):
        world.advance(second)
        sample, places = look(world), world.find_places()
        assert sample.gpu_utilization_percent is not None
        assert sample.gpu_utilization_percent <= 80
        for process in sample.processes:
            one = small if places[process.pid] == ProcessPlace(pod_uid="uid-small") else large
            assert process.sm_utilization_percent is not None
            assert process.memory_used_bytes is not None
            assert process.sm_utilization_percent <= one.cores
            assert process.memory_used_bytes <= one.memory_mib * MIB
            peaks[one] = max(peaks[one], process.sm_utilization_percent)
        assert sample.memory_used_bytes == pytest.approx(
            sum(each.memory_used_bytes or 0 for each in sample.processes), abs=2 * MIB
        )
    assert all(peak > each.cores / 5 for each, peak in peaks.items())
    assert len(look(world).processes) == 2
    assert not look(world, 1).processes
    assert look(world, 1).gpu_utilization_percent == 0


def test_a_job_goes_on_until_its_part_changes_or_ends(world: World) -> None:
    """Who comes or goes beside it does not disturb it."""
    first, second = work(world, "first"), work(world, "second")
    world.set_works((first,))
    world.advance(60)
    (process,) = look(world).processes
    world.set_works((first, second))
    world.advance(61)
    assert process.pid in {each.pid for each in look(world).processes}
    world.set_works((replace(first, memory_mib=1024),))
    world.advance(90)
    (changed,) = look(world).processes
    assert changed.memory_used_bytes is not None
    assert changed.memory_used_bytes <= 1024 * MIB
    world.set_works(())
    assert not look(world).processes
    assert world.find_places() == {}


def test_who_is_held_to_no_part_of_compute_uses_some(world: World) -> None:
    """Shares of the profile hami may say nothing of cores."""
    world.set_works((work(world, "free", cores=0),))
    used = []
    for second in range(1, 100):
        world.advance(second)
        used += [process.sm_utilization_percent or 0 for process in look(world).processes]
    assert 0 < max(used) <= 50


def test_what_ends_processes_ends_those_of_parts(world: World) -> None:
    """A reset, an error that ends jobs, a driver that goes, a card that is pulled out."""
    for line in ("reset 0", "xid 13 0", "driver gone", "unplug 0"):
        fresh = World(DGX)
        fresh.set_works((work(fresh, "train"),))
        fresh.advance(30)
        assert fresh.find_places()
        fault(fresh, line)
        assert not fresh.find_places()


def test_a_container_goes_over_its_limit(world: World) -> None:
    world.set_works((work(world, "train", memory_mib=1000), work(world, "other", memory_mib=1000)))
    world.advance(30)
    assert fault(world, "over-limit train") == "ml/train uses 150 % of its part of the memory"
    world.advance(31)
    places = world.find_places()
    used = {places[each.pid].pod_uid: each.memory_used_bytes for each in look(world).processes}
    assert used["uid-train"] == 1500 * MIB
    assert (used["uid-other"] or 0) <= 1000 * MIB
    fault(world, "over-limit ml/train 300")
    world.advance(32)
    assert 3000 * MIB in {each.memory_used_bytes for each in look(world).processes}
    fault(world, "clear")
    world.advance(60)
    assert all((each.memory_used_bytes or 0) <= 1000 * MIB for each in look(world).processes)


def test_the_library_is_absent_where_that_is_said(world: World) -> None:
    """In all others it came up; of folders that nobody has it did not."""
    world.set_works((work(world, "train"), work(world, "other")))
    assert (world.crowd.has_library("p-train"), world.crowd.has_library("p-nobody")) == (True, False)
    assert fault(world, "no-library train") == "ml/train runs without the library that is to hold it"
    assert (world.crowd.has_library("p-train"), world.crowd.has_library("p-other")) == (False, True)
    fault(world, "clear")
    assert world.crowd.has_library("p-train")


def test_a_program_that_was_given_nothing_takes_memory(world: World) -> None:
    """All there is, or as much as is said; it is of the host, and never more is used than there is."""
    world.set_works((work(world, "train"),))
    world.advance(30)
    usable = world.gpus[0].seat.model.memory.total_mib - world.gpus[0].seat.model.memory.reserved_mib
    assert fault(world, "foreign 0") == f"on GPU 0 a program that was given nothing uses {usable} MiB"
    sample = look(world)
    assert sample.processes[0].pid == FOREIGN_PID
    assert (sample.memory_used_bytes, sample.memory_free_bytes) == (usable * MIB, 0)
    assert world.find_places()[FOREIGN_PID].pod_uid == ""
    fault(world, "foreign 0 1000")
    assert look(world).processes[0].memory_used_bytes == 1000 * MIB
    assert fault(world, "foreign 0 gone") == "on GPU 0 a program that was given nothing has gone"
    assert len(look(world).processes) == 1


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("over-limit nobody", r"'nobody' names no single pod .* at work are: ml/train, nlp/train"),
        ("no-library train", r"'train' names no single pod .* at work are: ml/train, nlp/train"),
        ("over-limit ml/train 2000", "'2000' is no percentage: expected a whole number from 1 to 1000"),
        ("foreign 0 much", "'much' is no MiB: expected a whole number from 1 to"),
    ],
)
def test_what_cannot_be_is_refused(world: World, line: str, complaint: str) -> None:
    train = work(world, "train")
    world.set_works((train, replace(train, pod="nlp/train", pod_uid="uid-nlp", folder="p-nlp")))
    with pytest.raises(ValueError, match=complaint):
        fault(world, line)
    assert not world.crowd.over_percent
    assert not world.crowd.without_library


def test_without_pods_it_is_said_how_to_have_some(world: World) -> None:
    """A simulation gives no parts unless it is told to."""
    with pytest.raises(ValueError, match="at work are: nobody yet; pods come to GPUs that have the door"):
        fault(world, "over-limit train")
