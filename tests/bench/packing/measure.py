"""Pods that come and go on a cluster that they would overfill: what of it is given away, and how many are refused.

Pods come at random, stay for a while at random, and ask together for 105 % of what there is; who finds no room goes
away. What is told is of the second half, when the cluster has long been full. All policies meet the same pods.
"""

import heapq
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

from tests.bench.packing.policies import GPUS, POLICIES, WHOLE, Policy
from tests.bench.packing.sizes import LISTS, Sizes
from tests.bench.rows import Row

NODES: Final = 50
LOAD: Final = 1.05
PODS: Final = 4000
SEEDS: Final = (1, 2, 3)


GIVEN, REFUSED = "given away", "refused"


class Filled(NamedTuple):
    """What became of one cluster, in percent."""

    given: float
    refused: float


def measure(seeds: tuple[int, ...] = SEEDS, pods: int = PODS) -> list[Row]:
    """Two rows for each list and policy, a sample for each seed."""
    rows = []
    for title, sizes in LISTS.items():
        for name, make in POLICIES.items():
            told = [fill(make, sizes, seed, pods) for seed in seeds]
            rows.append(Row(name_row(title, name, GIVEN), "%", [each.given for each in told]))
            rows.append(Row(name_row(title, name, REFUSED), "%", [each.refused for each in told]))
    return rows


def name_row(title: str, policy: str, what: str) -> str:
    """As a list, a policy and what is told of it are called in the table."""
    return f"packing {title}, {policy}: {what}"


def fill(make: Callable[[int, Sizes], Policy], sizes: Sizes, seed: int, pods: int, nodes: int = NODES) -> Filled:
    """One cluster under one policy: the share of it that was given on average, and the share of pods refused."""
    chance, policy = Random(seed), make(nodes, sizes)
    capacity = nodes * GPUS * WHOLE
    stay = LOAD * capacity / sizes.mean
    going: list[tuple[float, int, int]] = []
    now = used = since = total = 0.0
    refused = 0
    for number in range(pods):
        come, size, lasts = now + chance.expovariate(1), sizes.draw(chance), chance.expovariate(1 / stay)
        while going and going[0][0] <= come:
            gone, leaver, freed = heapq.heappop(going)
            total += used * (gone - now)
            now, used = gone, used - freed
            policy.go(leaver)
        total += used * (come - now)
        now = come
        if number == pods // 2:
            since, total, refused = now, 0.0, 0
        if policy.come(number, size):
            used += size
            heapq.heappush(going, (now + lasts, number, size))
        else:
            refused += 1
    return Filled(100 * total / (now - since) / capacity, 100 * refused / (pods - pods // 2))
