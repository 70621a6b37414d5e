"""Rows that other benches have of the agent, taken in turns with an original: the pair, the shim, a MIG layout."""

from collections.abc import Iterator, Sequence
from typing import Final

from tests.bench.compare import Rows
from tests.bench.peers.node import render_plugin, require_root
from tests.bench.peers.originals import Built
from tests.bench.peers.table import Goal, Turn
from tests.bench.pieces import mig, shim
from tests.bench.rows import Row, index_rows
from tests.bench.whole import foreign

PAIR: Final = "prefer + Allocate, 1 of 8"
PAIR_GOALS: Final = (
    Goal(PAIR, limit=1.0),
    Goal(PAIR, "p99", limit=0.8, beside=1.2),
    Goal("prefer + Allocate, 4 of 8"),
    Goal("prefer + Allocate, 8 of 8"),
    Goal("exec to Register"),
    Goal("exec to advertised"),
    Goal("memory, PSS"),
)
ENVIRONMENT: Final = "added to create, all GPUs"
ENVIRONMENT_GOALS: Final = (Goal(ENVIRONMENT, limit=0.6), Goal("added to create, none"), Goal("added to delete"))
LAYOUT: Final = "MIG layout applied, by the calls' own time"
LAYOUT_GOALS: Final = (Goal(LAYOUT, limit=1.2),)
PAIR_ROUNDS: Final = 5
ENVIRONMENT_ROUNDS: Final = 100


def measure_pair(original: Built, turns: int, rounds: int = PAIR_ROUNDS) -> Iterator[Turn]:
    """Each on a fresh node; the answer of ours is durable by then."""
    require_root()
    command = render_plugin(original)
    for _ in range(turns):
        yield (
            index_rows(foreign.measure_agent(rounds)),
            index_rows(foreign.measure(command, None, rounds)),
        )


def measure_environment(original: Built, turns: int, rounds: int = ENVIRONMENT_ROUNDS) -> Iterator[Turn]:
    """Each in turns with the low-level runtime alone."""
    assert original.program == shim.STOCK
    for _ in range(turns):
        rows = shim.measure(rounds)
        yield _pick(rows, shim.OURS), _pick(rows, shim.THEIRS)


def _pick(rows: Sequence[Row], whose: str) -> Rows:
    """The rows of one side, by what both call them."""
    found = index_rows([row for row in rows if row.name.startswith(f"{whose}, ")])
    return {name.removeprefix(f"{whose}, "): row for name, row in found.items()}


def measure_layout(_driver: Built, turns: int) -> Iterator[Turn]:
    """What the driver itself takes for the same calls is one."""
    for _ in range(turns):
        rows = {row.name: row for row in mig.measure_applying(rounds=1)}
        yield (
            index_rows([Row(LAYOUT, "x", rows[mig.APPLIED].samples)]),
            index_rows([Row(LAYOUT, "x", [1.0])]),
        )
