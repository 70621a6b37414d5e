"""Stories in which everything goes wrong, each in a process with a mount namespace of its own."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.chaos.cluster_slots import DOMAIN, NOTICED_SECONDS, ClusterSlots
from tests.chaos.plan import plan_story
from tests.chaos.repair_story import list_repair_steps
from tests.chaos.repair_truth import LATE_SECONDS, Opened, RepairTruth
from tests.chaos.room_story import list_room_steps
from tests.chaos.story import Step, list_steps
from tests.chaos.truth import Violated
from tests.fakes.apiserver import NODE, FakeApiServer

STEPS = 200
FEW_STEPS = 40
SEED = 1
NIGHTLY_SEEDS = range(100, 200)
"""A hundred stories of two hundred steps."""
HAS_NAMESPACES = (
    shutil.which("unshare") is not None
    and subprocess.run(["unshare", "--map-root-user", "--mount", "true"], capture_output=True, check=False).returncode
    == 0
)
LONG_FREEZE_SECONDS = 60
RESULTS = Path("results")
RESULT = ("--result", str(RESULTS / "chaos.jsonl")) if RESULTS.is_dir() else ()
"""Where a night keeps what its stories told; `python -m tests.bench --keep-chaos` takes it into the docs."""
needs_namespaces = pytest.mark.skipif(not HAS_NAMESPACES, reason="needs mount namespaces, which this machine forbids")


def tell_story(seed: int, *words: str, steps: int = STEPS) -> None:
    command = ["unshare", "--map-root-user", "--mount", sys.executable, "-m", "tests.chaos"]
    words = ("--seed", str(seed), "--steps", str(steps), *words)
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, f"{' '.join([*command[:4], *words])}\n{done.stdout[-6000:]}{done.stderr[-3000:]}"


@pytest.mark.parametrize("list_all", [list_steps, list_room_steps, list_repair_steps])
def test_a_seed_tells_the_same_story_again(list_all: Callable[[float], Mapping[Step, int]]) -> None:
    """Steps, and whatever is drawn inside them, depend on nothing but the seed and their number."""
    weights = {step.__name__: weight for step, weight in list_all(1.0).items()}

    def tell(seed: int) -> list[tuple[str, float]]:
        return [(kind, chance.random()) for kind, chance in plan_story(seed, 5 * STEPS, weights)]

    assert tell(1) == tell(1)
    assert tell(1) != tell(2)
    assert {kind for kind, _ in tell(1)} == set(weights)


@needs_namespaces
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.long
@pytest.mark.parametrize("steps", [FEW_STEPS, pytest.param(STEPS, marks=pytest.mark.nightly)])
def test_nothing_is_violated_while_everything_goes_wrong(steps: int) -> None:
    """Over so many faults no device is given twice, no allocation is lost, the agent is well again after each pause."""
    tell_story(int(os.environ.get("CHAOS_SEED", str(SEED))), steps=steps)


@needs_namespaces
@pytest.mark.nightly
@pytest.mark.timeout(1900)
@pytest.mark.parametrize("seed", NIGHTLY_SEEDS)
def test_nothing_is_violated_behind_any_door(seed: int) -> None:
    """Another 20,000 steps, with parts, claims, layouts, daemons and tables, and doors that are switched."""
    tell_story(seed, "--rooms", "--freeze-seconds", str(LONG_FREEZE_SECONDS), *RESULT)


@needs_namespaces
@pytest.mark.nightly
@pytest.mark.timeout(1900)
@pytest.mark.parametrize("seed", NIGHTLY_SEEDS)
def test_no_repair_hits_anybody(seed: int) -> None:
    """Another 20,000 steps: no healthy GPU is reset, no holder hit, no slot left, and all settings come back."""
    tell_story(seed, "--repairs")


@needs_namespaces
@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", NIGHTLY_SEEDS)
def test_nothing_is_violated_in_many_stories(seed: int) -> None:
    """The same for 20,000 steps, in which a standstill may last a minute."""
    tell_story(seed, "--freeze-seconds", str(LONG_FREEZE_SECONDS), *RESULT)


def test_a_reset_that_hits_somebody_is_found() -> None:
    """What is healthy, held, open for long, or reset for the third time within a week; peers that were demanded may."""
    truth = RepairTruth()
    truth.needs |= {0: "reset", 1: "bus"}
    truth.check_reset([0, 1], [], [], 0.0)
    truth.check_reset([2], [2], [], 0.0)
    with pytest.raises(Violated, match=r"GPUs \[3\] are healthy and are reset, together with \[0, 3\]"):
        truth.check_reset([0, 3], [], [], 0.0)
    truth.demand([3])
    truth.check_reset([0, 3], [], [], 0.0)
    with pytest.raises(Violated, match=r"GPUs \[0\] are reset, and \['pod'\] have them"):
        truth.check_reset([0], [], ["pod"], 0.0)
    truth.opened[7] = Opened(0, 1.0)
    assert truth.find_users([0]) == [7]
    truth.check_reset([0], [], [], 1.0 + LATE_SECONDS)
    with pytest.raises(Violated, match="process 7 has it open"):
        truth.check_reset([0], [], [], 2.0 + LATE_SECONDS)
    for week in (0, 0, 1):
        truth.week = week
        truth.count([0])
    truth.count([0])
    with pytest.raises(Violated, match="GPU 0 is reset 3 times within a week"):
        truth.count([0])
    assert (truth.mend([0, 1], "reset"), truth.needs) == ([0], {1: "bus"})
    truth.reboot()
    assert (truth.needs, truth.opened) == ({}, {})


def test_what_a_node_does_with_slots_is_judged() -> None:
    """A reset without a slot, or long after a person has suspended repairs; a slot that is taken from a living node."""
    api = FakeApiServer()
    slots, now = ClusterSlots(api), time.monotonic()
    with pytest.raises(Violated, match="the node holds no slot"):
        slots.check_reset(now)
    assert slots.take(1, NODE, is_living=False)
    slots.check_reset(now)
    slots.suspend()
    slots.check_reset(now)
    with pytest.raises(Violated, match="after a person has suspended repairs"):
        slots.check_reset(now + 2 * NOTICED_SECONDS)
    slots.resume()
    slots.check_reset(now + 2 * NOTICED_SECONDS)
    assert (slots.take(1, "node-2", is_living=True), slots.take(0, "node-2", is_living=True)) == (False, True)
    slots.check()
    api.store.objects["leases"][DOMAIN.name_slot(0)]["spec"]["holderIdentity"] = f"{NODE}/one/1/0"
    with pytest.raises(Violated, match="was node-2/boot/1/0's, and is node-1/one/1/0's"):
        slots.check()
