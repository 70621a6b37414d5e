"""Law: where a node says what its containers have, the extender counts what the node counts, whatever pods say."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.model.journal import Binding, GpuFraction
from nodeagent.rules.placement.space import plan_space
from tests.support.examples import examples
from tests.support.gpus import gpu_uuid
from tests.support.placement import BLOCK, GIB, eight
from tests.support.scheduling import FakeScheduler, bind_pod, limit, make_pod, make_seen_node

GPUS = 8


def draw_bound(chance: Random, cores: int) -> GpuFraction:
    """As it was chosen, by another evaluator or person; of whatever size."""
    return GpuFraction(gpu=gpu_uuid(chance.randrange(GPUS)), cores=cores, memory_bytes=chance.randrange(1, 4) * GIB)


@settings(max_examples=examples(200))
@given(seed=st.integers(0, 1 << 32), count=st.integers(0, 40))
def test_the_extender_counts_what_the_node_counts(seed: int, count: int) -> None:
    """Pods with choices that were obeyed or not, set to other sizes, and some that have not started: these add up."""
    chance = Random(seed)
    scheduler = FakeScheduler()
    bindings: list[Binding] = []
    waiting: list[GpuFraction] = []
    for number in range(count):
        cores, chosen = chance.randrange(1, 20), chance.randrange(GPUS)
        annotations = {"tencent.com/predicate-node": "n", "tencent.com/predicate-gpu-idx-0": str(chosen)}
        pod = make_pod(f"p{number}", limit(cores, 4), node="n", annotations=annotations)
        scheduler.cluster.note_pod(pod, 0.0)
        if chance.random() < 0.7:
            size = chance.choice((cores, chance.randrange(1, 20)))
            bindings.append(bind_pod(pod, "c0", draw_bound(chance, size)))
        else:
            waiting.append(GpuFraction(gpu=gpu_uuid(chosen), cores=cores, memory_bytes=GIB))
    gone = make_pod("gone", limit(10, 4))
    chance.shuffle(bindings)
    scheduler.cluster.note_node(
        make_seen_node("n", eight(), bound=[*bindings, bind_pod(gone, "c0", draw_bound(chance, 9))])
    )
    account = scheduler.cluster.find_space("n")
    assert account is not None
    truth = [part for binding in bindings for part in binding.parts]
    assert account.space.rooms == plan_space(eight(), BLOCK, withheld={}).occupy([*truth, *waiting]).rooms
    assert not account.guessed
