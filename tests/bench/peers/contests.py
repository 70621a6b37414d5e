"""What is measured beside which original, by name, and in turns."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Final, NamedTuple

from tests.bench.peers import claims, parts, pieces, pods, scheduling
from tests.bench.peers.api_server import say
from tests.bench.peers.neighbours import neighbours
from tests.bench.peers.node import NotMeasured
from tests.bench.peers.originals import Built, build_claims, build_plugin, build_runtime, take_the_driver
from tests.bench.peers.table import BESIDE, QUIET, Goal, LeftOut, Line, Turn, Where, judge
from tests.bench.whole.foreign import PluginEnded
from tests.integration.cluster.errors import ClusterError
from tests.integration.runtimes.releases import NotBuilt


class Contest(NamedTuple):
    """The agent beside one original; `measure` takes turns, as many as it is told."""

    build: Callable[[], Built]
    measure: Callable[[Built, int], Iterator[Turn]]
    goals: tuple[Goal, ...]


CONTESTS: Final[Mapping[str, Contest]] = {
    "pair": Contest(build_plugin, pieces.measure_pair, pieces.PAIR_GOALS),
    "environment": Contest(build_runtime, pieces.measure_environment, pieces.ENVIRONMENT_GOALS),
    "prepare": Contest(build_claims, claims.measure, claims.GOALS),
    "parts": Contest(parts.build_parts, parts.measure, parts.GOALS),
    "pods": Contest(pods.build, pods.measure, pods.GOALS),
    "scheduling": Contest(scheduling.take_the_scheduler, scheduling.measure, scheduling.GOALS),
    "layout": Contest(take_the_driver, pieces.measure_layout, pieces.LAYOUT_GOALS),
}


def measure(
    contests: Mapping[str, Contest], turns: int, *, beside_neighbours: bool
) -> tuple[list[Line], list[LeftOut]]:
    """Every contest on a quiet machine, and again beside neighbours where that is wanted."""
    lines: list[Line] = []
    left_out: list[LeftOut] = []
    for setting in (QUIET, BESIDE) if beside_neighbours else (QUIET,):
        for name, contest in contests.items():
            try:
                lines += _hold(name, contest, turns, setting)
            except (NotBuilt, NotMeasured, PluginEnded, ClusterError, TimeoutError) as error:
                left_out.append(LeftOut(name, setting, str(error)))
                say(f"{name}: left out: {error}")
    return lines, left_out


def _hold(name: str, contest: Contest, turns: int, setting: str) -> Sequence[Line]:
    say(f"{name}: building")
    original = contest.build()
    taken: list[Turn] = []
    with neighbours() if setting == BESIDE else nullcontext():
        for turn in contest.measure(original, turns):
            taken.append(turn)
            say(f"{name}, {setting}: turn {len(taken)} of {turns}, beside {original.name}")
    return judge(taken, contest.goals, Where(name, setting, original.name))
