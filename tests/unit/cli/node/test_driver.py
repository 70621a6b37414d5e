"""The commands about upgrades of the driver, with an agent that says what the test says."""

import json
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from nodeagent.cli.answers import asking
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed
from nodeagent.model.orders import REHEARSE_UPGRADE, NoArguments, Order
from nodeagent.model.upgrades import PutAside, UpgradeEnding, UpgradePhase, UpgradeState
from tests.support.programs.command_line import run_here
from tests.support.repairs import NEW, OLD, make_upgrade

pytestmark = pytest.mark.may_block("commands read files in their own short-lived loop")

DONE = make_upgrade(UpgradePhase.RESTORE, ending=UpgradeEnding.DONE, ended_seconds=240.0)
FAILED = make_upgrade(UpgradePhase.RESTORE, 2, failure="exit code 1", ending=UpgradeEnding.FAILED, ended_seconds=9.0)
KEPT = ("team/train: the budget train needs 1 healthy pods",)
PUT_ASIDE = PutAside(labels={"nvidia.com/gpu.deploy.dcgm": "true"}, services=("nvidia-persistenced",))
DUE = UpgradeState(
    mode="observe",
    loaded=OLD,
    installed=OLD,
    wanted=NEW,
    sentence=f"would upgrade the driver from {OLD} to {NEW}",
    obstacles=("mode is observe",),
    pods=("team/train",),
    upgrades=(FAILED, DONE),
)

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command with an agent in a state."""

    def run_with(state: UpgradeState, *words: str, refusal: str = "") -> tuple[int, str]:
        def give(order: Order[NoArguments], _: NoArguments) -> str:
            assert order is REHEARSE_UPGRADE
            if refusal:
                raise CommandFailed(refusal, ExitCode.UNREACHABLE)
            answers.append(replace(state, budgets=KEPT))
            return KEPT[0]

        answers = [state]
        agent = SimpleNamespace(simulated="", read=lambda _path, _: answers[-1], give=give)
        monkeypatch.setattr(asking, "find_agent", lambda *_, **__: agent)
        code, out, _ = run_here("driver", *words)
        return code, out

    return run_with


def test_a_plan_names_who_would_leave_what_is_in_the_way_and_how_long_it_took(run: Run) -> None:
    code, out = run(DUE, "plan")
    assert (code, out.splitlines()) == (
        0,
        [
            f"would upgrade the driver from {OLD} to {NEW}",
            f"  loaded     {OLD}",
            f"  installed  {OLD}",
            f"  wanted     {NEW}",
            "  must leave team/train",
            "  kept       team/train: the budget train needs 1 healthy pods",
            "  not done   mode is observe",
            "  last time  4 min",
        ],
    )
    told = json.loads(run(DUE, "plan", "--json")[1])
    assert (told["pods"], told["budgets"]) == (["team/train"], [*KEPT])


def test_a_plan_without_an_answer_about_budgets_says_why(run: Run) -> None:
    """Looking needs fewer rights than giving orders; without anybody who would leave nobody is asked."""
    code, out = run(DUE, "plan", refusal="only root may")
    assert (code, "  kept       the budgets are not known: only root may\n" in out) == (0, True)
    assert "kept" not in run(replace(DUE, pods=()), "plan")[1]
    assert "kept" not in run(replace(DUE, obstacles=()), "plan")[1]


def test_a_plan_of_a_node_without_pods_and_upgrades(run: Run) -> None:
    _, out = run(UpgradeState(), "plan")
    assert "upgrades of the driver are off" in out
    assert "must leave no pod has a GPU now" in out
    assert "last time  no upgrade was done here yet" in out


def test_the_status_tells_of_the_upgrade_under_way_and_of_the_last_ones(run: Run) -> None:
    under_way = make_upgrade(UpgradePhase.PAUSE, 3, paused_by="alice", put_aside=PUT_ASIDE)
    code, out = run(replace(DUE, upgrades=(under_way, FAILED, DONE), obstacles=("paused by alice",)), "status")
    assert code == 0
    for line in (
        "  waits      paused by alice",
        f"upgrade 3  {OLD} to {NEW}, pause",
        "  paused by  alice",
        "  put aside  nvidia.com/gpu.deploy.dcgm (was true)",
        "  put aside  service nvidia-persistenced",
        f"upgrade 2  {OLD} to {NEW}, failed",
        "  because    exit code 1",
        f"upgrade 1  {OLD} to {NEW}, done",
        "  took       4 min",
    ):
        assert line in out.splitlines()
