"""`nodeagent cluster status`."""

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TextIO

import anyio

from nodeagent.cli.agent.settings import load_for_looking
from nodeagent.cli.answers.output import write_table
from nodeagent.cli.answers.table import Table, read_environment
from nodeagent.cli.cluster.connection import describe_error, find_cluster, open_cluster
from nodeagent.cli.cluster.watching import WatchedCluster
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.config.schema import Settings
from nodeagent.edge.kube.errors import KubeError
from nodeagent.model.readiness import AGENT_LABEL, AGENT_NAME, Readiness
from nodeagent.model.values import Value
from nodeagent.rules.cluster_readiness import SETTLE_SECONDS, find_rest


class ClusterRecord(Value, frozen=True):
    """The answer for programs."""

    ready: bool
    daemon_sets: tuple[Readiness, ...]


def run(arguments: argparse.Namespace, streams: Streams) -> int:
    """Show which nodes are not ready, once or after the wait until all are."""
    environ = read_environment(arguments)
    settings = load_for_looking(arguments, environ)
    try:
        found = anyio.run(_ask, arguments, settings, environ, streams.err)
    except KubeError as error:
        raise CommandFailed(describe_error(error), ExitCode.UNREACHABLE) from error
    if not found:
        where = f"in namespace {arguments.namespace}" if arguments.namespace else "where the command looked"
        raise CommandFailed(
            f"no DaemonSet with the label {AGENT_LABEL}={AGENT_NAME} is {where}: install the chart or set --namespace",
            ExitCode.UNREACHABLE,
        )
    record = ClusterRecord(ready=is_ready(found), daemon_sets=tuple(found))
    write_table(arguments, streams, record, tabulate_unready(found), tuple(_describe_all(found)))
    return ExitCode.OK if record.ready else ExitCode.NOT_READY


def is_ready(found: Sequence[Readiness]) -> bool:
    """Whether there are agents, and all are ready."""
    return bool(found) and all(each.ready for each in found)


def tabulate_unready(found: Sequence[Readiness]) -> Table:
    """A row for each node that is not ready; the message comes last, as the last column is cut on a terminal."""
    return Table(
        head=("NODE", "REASON", "REMEDY", "MESSAGE"),
        rows=[(node.name, node.reason, node.remedy, node.message) for each in found for node in each.unready_nodes],
        nothing="no node is known to be unready",
    )


async def wait_ready(
    cluster: WatchedCluster, decide: Callable[[], list[Readiness]], report: Callable[[str], object]
) -> None:
    """Return once every node has been ready for a while; `report` hears of each change in words."""
    said, ready_since = "", math.inf
    while True:
        changed = cluster.changed
        found = decide()
        line = "; ".join(_describe_count(each) for each in found) or "no DaemonSet of agents"
        if line != said:
            said = line
            report(line)
        now = anyio.current_time()
        ready_since = min(ready_since, now) if is_ready(found) else math.inf
        rest = find_rest(SETTLE_SECONDS, now - ready_since)
        if not rest:
            return
        with anyio.move_on_after(rest):
            await cluster.wait_change(changed)


async def _ask(
    arguments: argparse.Namespace, settings: Settings, environ: Mapping[str, str], err: TextIO
) -> list[Readiness]:
    expects = settings.kubernetes.node_condition

    def say(line: str) -> None:
        print(f"nodeagent: {line}", file=err, flush=True)

    async with open_cluster(arguments, settings, find_cluster(arguments, settings, environ)) as api:
        rng = Random()  # noqa: S311 - spreads load, keeps no secret
        cluster = WatchedCluster(api, rng, lambda error: say(describe_error(error)))
        await cluster.read()

        def decide() -> list[Readiness]:
            return [each.readiness for each in cluster.decide(expects_conditions=expects)]

        if arguments.wait != 0:
            # The flag without a value waits without a limit.
            with anyio.move_on_after(arguments.wait):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(cluster.follow, name="cluster")
                    await wait_ready(cluster, decide, say)
                    tasks.cancel_scope.cancel()
        return decide()


def _describe_count(readiness: Readiness) -> str:
    where = f"{readiness.namespace}/{readiness.name}"
    return f"{where}: {readiness.ready_nodes} of {readiness.nodes} nodes are ready ({readiness.reason})"


def _describe_all(found: Sequence[Readiness]) -> list[str]:
    return [line for each in found for line in _describe_one(each)]


def _describe_one(readiness: Readiness) -> list[str]:
    lines = [_describe_count(readiness)]
    if not readiness.unready_nodes:
        lines.append(f"  {readiness.message}")
    if readiness.nodes_without_agent:
        lines.append(f"  without an agent: {readiness.nodes_without_agent}")
    if readiness.nodes_without_gpus:
        lines.append(f"  ready, without a GPU: {readiness.nodes_without_gpus}")
    if readiness.impaired_nodes:
        lines.append(f"  ready, with some unhealthy GPUs: {', '.join(readiness.impaired_nodes)}")
    for what, counts in (("version", readiness.versions), ("GPU model", readiness.models)):
        if counts:
            lines.append(f"  ready by {what}: {', '.join(f'{name}: {count}' for name, count in counts.items())}")
    return lines
