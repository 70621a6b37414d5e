"""Parts of GPUs to which MPS holds containers: which daemons, with which limits, and where they cannot be."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from nodeagent.config.schema import Settings
from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Binding, Enforcement, FractionTable
from nodeagent.model.mps import MpsLimits, MpsPhase, MpsState
from nodeagent.rules.mps.daemons import DaemonKind
from nodeagent.rules.mps.fractions import (
    explain_foreign_daemon,
    explain_fraction_daemon,
    list_clients,
    list_others,
    name_fraction_daemon,
    plan_fraction_access,
    plan_fraction_daemons,
    plan_fraction_limits,
    plan_obstacles,
)
from tests.support.fractions import make_bound, part
from tests.support.gpus import gpu_uuid, make_gpu
from tests.support.mps import daemon_of

A, B = gpu_uuid(0), gpu_uuid(1)
LIMITS = MpsLimits(thread_percentage=30, memory_mib={A: 8192})


def held(number: int, index: int = 0, cores: int = 30, gib: int = 8) -> Binding:
    """A container that MPS holds to its part."""
    return replace(make_bound(number, (number,), part(index, cores, gib)), enforcement=Enforcement.MPS)


def table_of(*bindings: Binding) -> FractionTable:
    return FractionTable(bindings={one.number: one for one in bindings})


def test_each_gpu_with_such_parts_has_a_daemon() -> None:
    """Its own limits are those of its largest part: a client that does not say its own gets no more than that."""
    other = make_bound(9, (9,), part(2, 10, 1))
    first, second = plan_fraction_daemons(table_of(held(1), held(2, cores=20, gib=16), held(3, 1, 50, 1), other))
    assert (first.name, first.gpus, first.kind, first.owner) == (f"part-{A}", (A,), DaemonKind.PARTS, "parts")
    assert first.limits == MpsLimits(thread_percentage=30, memory_mib={A: 16384})
    assert second.limits == MpsLimits(thread_percentage=50, memory_mib={B: 1024})
    assert plan_fraction_daemons(table_of(other)) == ()


def test_who_goes_through_the_daemon_and_who_does_not() -> None:
    some, other = held(1), make_bound(2, (2,), part(0, 10, 1))
    table = table_of(some, other)
    assert (list(list_clients(table, A)), list(list_others(table, A))) == ([some], [other])
    assert (list(list_clients(table, B)), list(list_others(table, B))) == ([], [])


@pytest.mark.parametrize(
    ("binding", "threads", "mib"),
    [
        (held(1), 30, 8192),
        (replace(held(1), core_limit=60), 60, 8192),
        (held(1, cores=0), 100, 8192),
        (replace(held(1), parts=(replace(part(0, 5, 1), memory_bytes=1),)), 5, 1),
    ],
)
def test_limits_of_a_client_are_those_of_its_part(binding: Binding, threads: int, mib: int) -> None:
    """It may use as much compute as its pod allows itself; less memory than MPS counts is the least that it does."""
    assert plan_fraction_limits(binding, A) == MpsLimits(thread_percentage=threads, memory_mib={A: mib})


def test_a_container_is_told_its_daemon_and_its_limits() -> None:
    """The pipes are where a client looks that is told nothing."""
    access = plan_fraction_access(Settings(), held(1))
    assert access.environment == {
        "CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=8192M",
    }
    root = Settings().device_plugin.mps_root
    assert [Path(one.host_path) for one in access.mounts] == [root / f"part-{A}" / "pipe", root / "shm"]


def state_of(
    phase: MpsPhase = MpsPhase.READY,
    *,
    name: str = name_fraction_daemon(A),
    limits: MpsLimits = LIMITS,
    fault: str = "",
) -> MpsState:
    daemon = replace(daemon_of(A, phase, fault), name=name, limits=limits, last_fault=fault)
    return MpsState(daemons=(daemon,))


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (None, "nobody looks after MPS daemons (yet): see `nodeagent status`"),
        (MpsState(), "its MPS daemon is not started yet"),
        (state_of(name=A), "its MPS daemon has yet to end: ready"),
        (state_of(MpsPhase.STARTING), "its MPS daemon is starting: it has not said that it is ready"),
        (state_of(MpsPhase.BROKEN, fault="no driver"), "its MPS daemon is broken: no driver"),
        (state_of(limits=MpsLimits(thread_percentage=30, memory_mib={A: 1})), "its MPS daemon has yet to take limits"),
        (state_of(limits=MpsLimits(memory_mib={A: 8192})), "its MPS daemon has yet to take limits"),
        (state_of(), ""),
    ],
)
def test_a_container_waits_until_its_daemon_is_ready_for_it(state: MpsState | None, said: str) -> None:
    found = explain_fraction_daemon(A, state, LIMITS)
    assert found.startswith(said)
    assert bool(found) == bool(said)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (None, ""),
        (MpsState(), ""),
        (state_of(MpsPhase.STARTING), ""),
        (replace(state_of(), daemons=(replace(state_of().daemons[0], last_fault="died once"),)), ""),
        (state_of(name=A), "its MPS daemon has yet to end: ready"),
        (state_of(MpsPhase.BROKEN, fault="it ended"), "its MPS daemon is broken: it ended"),
    ],
)
def test_a_gpu_whose_daemon_is_in_the_way_is_given_to_nobody(state: MpsState | None, said: str) -> None:
    """One that starts in order is not: it is waited for."""
    assert explain_foreign_daemon(A, state) == said


def refuse(gpu: Gpu, *bindings: Binding, state: MpsState | None = None, by_mps: bool) -> str:
    return plan_obstacles([gpu], bindings, state, by_mps=by_mps).get(GpuUuid(gpu.uuid), "")


def test_a_gpu_is_for_those_that_mps_holds_or_for_the_others() -> None:
    """Nobody gets past a daemon, and none is started over anybody's head."""
    gpu, other = make_gpu(0), make_bound(2, (2,), part(0, 10, 1))
    assert refuse(gpu, by_mps=True) == refuse(gpu, by_mps=False) == ""
    assert refuse(gpu, held(1), by_mps=True) == refuse(gpu, other, by_mps=False) == ""
    assert "who is not held by MPS" in refuse(gpu, other, by_mps=True)
    assert "nobody gets past its daemon" in refuse(gpu, held(1), by_mps=False)
    assert refuse(gpu, state=state_of(), by_mps=False) == "its MPS daemon has yet to end"
    assert refuse(gpu, state=state_of(), by_mps=True) == refuse(gpu, state=MpsState(), by_mps=False) == ""


def test_a_gpu_that_cannot_hold_anybody_by_mps_is_named() -> None:
    """Limits came with Volta; a daemon has so many clients and no more."""
    old = replace(make_gpu(0), compute_capability=(6, 1))
    assert "before Volta" in refuse(old, by_mps=True)
    assert refuse(old, by_mps=False) == ""
    volta = replace(make_gpu(0), compute_capability=(7, 0))
    many = [held(number, cores=1, gib=1) for number in range(16)]
    assert refuse(volta, *many[:15], by_mps=True) == ""
    assert "16 clients" in refuse(volta, *many, by_mps=True)
    assert refuse(replace(volta, compute_capability=None), *many, by_mps=True) == ""
