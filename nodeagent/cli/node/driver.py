"""`nodeagent driver status` and `nodeagent driver plan`."""

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime

from msgspec.structs import replace

from nodeagent.cli.answers.asking import ask, give
from nodeagent.cli.answers.output import write_answer
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.model.orders import REHEARSE_UPGRADE, NoArguments
from nodeagent.model.upgrades import DriverUpgrade, UpgradeState
from nodeagent.model.wording import render_age


def show(arguments: argparse.Namespace, streams: Streams) -> int:
    """The upgrade under way, and the past ones."""
    agent, state = ask(arguments, "upgrades", UpgradeState)
    write_answer(arguments, streams, state, "".join(f"{line}\n" for line in describe(state)), agent)
    return ExitCode.OK


def plan(arguments: argparse.Namespace, streams: Streams) -> int:
    """The pods touched by an upgrade, and the obstacles."""
    agent, state = ask(arguments, "upgrades", UpgradeState)
    # What keeps an upgrade back that has not begun is known of one that is due alone.
    if state.under_way is None and state.obstacles and state.pods:
        try:
            give(arguments, REHEARSE_UPGRADE, NoArguments())
            agent, state = ask(arguments, "upgrades", UpgradeState)
        except CommandFailed as error:
            state = replace(state, budgets=(f"the budgets are not known: {error}",))
    write_answer(arguments, streams, state, "".join(f"{line}\n" for line in describe_plan(state)), agent)
    return ExitCode.OK


def describe(state: UpgradeState) -> Iterator[str]:
    """The version loaded and wanted, then the upgrades, the newest first."""
    yield state.sentence
    yield from (f"  waits      {obstacle}" for obstacle in state.obstacles)
    for upgrade in state.upgrades:
        yield from _describe_upgrade(upgrade)


def _describe_upgrade(upgrade: DriverUpgrade) -> Iterator[str]:
    yield f"upgrade {upgrade.number}  {upgrade.before} to {upgrade.wanted}, {upgrade.ending or upgrade.phase}"
    yield f"  began      {_render_time(upgrade.began_seconds)}"
    if upgrade.ended_seconds is not None:
        yield f"  took       {render_age(upgrade.ended_seconds - upgrade.began_seconds)}"
    if upgrade.why_not_done:
        yield f"  because    {upgrade.why_not_done}"
    if upgrade.paused_by:
        yield f"  paused by  {upgrade.paused_by}"
    yield from (f"  put aside  {key} (was {value})" for key, value in sorted(upgrade.put_aside.labels.items()))
    yield from (f"  put aside  service {service}" for service in upgrade.put_aside.services)


def describe_plan(state: UpgradeState) -> Iterator[str]:
    """The versions, the pods that would leave, the budgets in the way, the obstacles, and the last upgrade's length."""
    yield state.sentence
    yield f"  loaded     {state.loaded or '-'}"
    yield f"  installed  {state.installed or '-'}"
    yield f"  wanted     {state.wanted or '-'}"
    yield from (f"  must leave {pod}" for pod in state.pods)
    if not state.pods:
        yield "  must leave no pod has a GPU now"
    yield from (f"  kept       {budget}" for budget in state.budgets)
    yield from (f"  not done   {obstacle}" for obstacle in state.obstacles)
    last = state.last_seconds
    yield f"  last time  {'no upgrade was done here yet' if last is None else render_age(last)}"


def _render_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
