"""Laws of what containers are given of GPUs, for any node and any order of coming, starting again and going."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeagent.components.allocations.roles.fractions import refuse_binding
from nodeagent.components.fractions.bind import Choice, Start, choose
from nodeagent.components.fractions.decide import FractionView, plan_limits, plan_view
from nodeagent.config.sections.fractions import FractionsSettings
from nodeagent.model.errors import AllocationError
from nodeagent.model.fractions import ContainerRequest, PodRequest
from nodeagent.model.health import Verdict
from nodeagent.model.journal import FractionTable
from nodeagent.model.offering import AllocationMode
from nodeagent.rules.fractions.pairing import Caller
from tests.support.fractions import make_caller, make_health, make_offering, make_pod, make_promise, used
from tests.support.gpus import make_gpu, make_inventory
from tests.support.journals import CORE, MEMORY
from tests.support.placement import GIB

CORES = st.sampled_from((1, 10, 30, 50, 99, 100, 200, 150))
BLOCKS = st.sampled_from((0, 1, 8, 32, 64, 128))


@st.composite
def views(draw: st.DrawFn) -> FractionView:
    """Up to six GPUs of two sizes at two NUMA nodes; some are ill, or go through another door."""
    count = draw(st.integers(1, 6))
    gpus = [
        replace(make_gpu(index, numa_node=index % 2), memory_total_bytes=draw(st.sampled_from((32, 16))) * GIB)
        for index in range(count)
    ]
    inventory = make_inventory(gpus)
    doors = st.sampled_from(
        [(AllocationMode.FRACTIONS, True)] * 4 + [(AllocationMode.FRACTIONS, False), (AllocationMode.WHOLE, True)]
    )
    offering = make_offering(inventory, {index: draw(doors) for index in range(count)})
    verdicts = st.sampled_from([Verdict.HEALTHY] * 5 + [Verdict.UNHEALTHY])
    health = make_health(inventory, {index: draw(verdicts) for index in range(count)})
    settings = FractionsSettings(enabled=True, memory_overcommit_ratio=draw(st.sampled_from((1.0, 1.0, 1.5))))
    return plan_view(inventory, offering, health, settings)


class Node:
    """What is promised and bound, as the journal would keep it."""

    def __init__(self, view: FractionView) -> None:
        self.view, self.table, self._number = view, FractionTable(), 0

    def admit(self, name: str, cores: int, blocks: int) -> Caller:
        """The kubelet promises ids that nobody has."""
        caller = make_caller(
            [f"core-{name}-{number}" for number in range(cores)],
            [f"mem-{name}-{number}" for number in range(blocks)],
            make_pod(name),
        )
        for resource, ids in ((CORE, caller.cores), (MEMORY, caller.memory)):
            if ids:
                self._number += 1
                promise = make_promise(self._number, ids, resource)
                self.table = replace(self.table, reservations={**self.table.reservations, self._number: promise})
        return caller

    def start(self, start: Start) -> Choice:
        """The container starts: the journal, which has an account of its own, takes what was chosen."""
        choice = choose(start, self.view, self.table, 0.0)
        assert choice == choose(start, self.view, self.table, 0.0)
        if choice.placement is not None:
            self._number += 1
            binding = replace(choice.binding, number=self._number)
            assert refuse_binding(self.table, binding, self.view.capacities, choice.leaving) == ""
            self.table = replace(self.table, bindings={**self.table.bindings, self._number: binding})
        return choice

    def end(self, number: int) -> None:
        """The container has ended, its promises with it."""
        ended = set(self.table.bindings[number].reservations)
        self.table = FractionTable(
            reservations={key: each for key, each in self.table.reservations.items() if key not in ended},
            bindings={key: each for key, each in self.table.bindings.items() if key != number},
        )


@given(views(), st.lists(st.tuples(CORES, BLOCKS, st.booleans(), st.sampled_from("012x")), max_size=25), st.integers())
def test_no_gpu_is_given_more_than_it_has(
    view: FractionView, story: list[tuple[int, int, bool, str]], seed: int
) -> None:
    """Nothing over-committed, nothing of a GPU that may not be given, the same twice for the same container."""
    node, chance = Node(view), Random(seed)  # plausible, not secret
    whole = {each.gpu: each for each in view.capacities}
    for number, (cores, blocks, ends, request) in enumerate(story):
        if ends and node.table.bindings:
            node.end(chance.choice(sorted(node.table.bindings)))
        caller = node.admit(f"pod-{number}", cores, blocks)
        annotations = {"tencent.com/predicate-gpu-idx-0": request}
        pod = PodRequest(pod=caller.pod, annotations=annotations, containers=(ContainerRequest(name="main"),))
        try:
            node.start(Start(caller, pod))
        except AllocationError:
            assert caller.pod not in {each.pod for each in node.table.bindings.values()}
        else:
            newest = max(node.table.bindings)
            again = node.start(Start(caller, None))
            assert (again.binding, again.placement) == (node.table.bindings[newest], None)
            assert not any(view.unfit[each.gpu] for each in again.binding.parts)
            assert len(plan_limits(again.binding, view.capacities, compute=True)) == max(1, cores // 100)
        for gpu, (given_cores, given_bytes, _) in used(node.table).items():
            assert given_cores <= whole[gpu].cores
            assert given_bytes <= whole[gpu].memory_bytes
