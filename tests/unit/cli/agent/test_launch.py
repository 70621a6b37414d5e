"""What the command line asks of the agent that it starts."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.app.plan import AgentPlan, SimulationPlan
from nodeagent.cli.agent.launch import launch
from nodeagent.config.load import load_settings
from nodeagent.core.channels.bus import Bus
from nodeagent.model.ports import GpuSource


async def _play_nothing(_root: Path, _bus: Bus, _gpus: GpuSource) -> None: ...


ALONE = SimulationPlan(1, _play_nothing)


@pytest.fixture(autouse=True)
def _own_signals() -> Iterator[None]:
    before = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("overrides", "environ", "simulation", "may_move"),
    [
        ((), {}, ALONE, True),
        (("http.listen=127.0.0.1:9400",), {}, ALONE, False),
        ((), {"NODEAGENT_HTTP__LISTEN": "127.0.0.1:9400"}, ALONE, False),
        ((), {}, None, False),
    ],
)
def test_only_a_simulation_whose_port_nobody_asked_for_may_move(
    monkeypatch: pytest.MonkeyPatch,
    overrides: tuple[str, ...],
    environ: dict[str, str],
    simulation: SimulationPlan | None,
    *,
    may_move: bool,
) -> None:
    """Whoever asked for a port gets that one or an error, and a node's agent stays where it is scraped."""
    plans: list[AgentPlan] = []
    monkeypatch.setattr("nodeagent.cli.agent.launch.run_agent", plans.append)
    chosen = ("gpus.source=simulated:t4", *overrides)
    launch(lambda _label: load_settings(environ=environ, overrides=chosen), environ, simulation=simulation)
    assert [plan.may_move for plan in plans] == [may_move]
