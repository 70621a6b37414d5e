"""`nodeagent cluster publish`: the condition of the agents' DaemonSet, written whenever it changes.

Owns the moment of each write. One process of a cluster does this; an orderly stop leaves the condition Unknown.
"""

import argparse
import math
from contextlib import suppress
from random import Random
from typing import Final

import anyio

from nodeagent.cli.agent.settings import load_for
from nodeagent.cli.answers.table import read_environment
from nodeagent.cli.cluster.connection import describe_error, find_cluster, open_cluster
from nodeagent.cli.cluster.watching import Judged, WatchedCluster
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.config.schema import Settings
from nodeagent.core.life.backoff import Backoff, BackoffSettings
from nodeagent.core.life.shutdown import ExitWatchdog, Shutdown
from nodeagent.core.log.lines import configure_logging, get_logger, report_repeats
from nodeagent.edge.kube.credentials import Credentials
from nodeagent.edge.kube.errors import CredentialsInvalid, KubeError
from nodeagent.rules.cluster_readiness import UNWATCHED, decide_write_delay, render_condition

STOP_SECONDS: Final = 3.0
_RETRY: Final = BackoffSettings(first_seconds=1.0, limit_seconds=60.0)
_log = get_logger(component="cluster status")


def run(arguments: argparse.Namespace, _streams: Streams) -> int:
    """Publish until a signal to stop."""
    environ = dict(read_environment(arguments))
    settings = load_for(arguments, environ).settings
    configure_logging(form=settings.log.format, level=settings.log.level)
    credentials = find_cluster(arguments, settings, environ)
    try:
        anyio.run(_run, arguments, settings, credentials)
    except CredentialsInvalid as error:
        raise CommandFailed(str(error), ExitCode.BAD_INPUT) from error
    finally:
        report_repeats(everything=True)
    return ExitCode.OK


class Publisher:
    """Writes the condition of each DaemonSet of agents."""

    def __init__(self, cluster: WatchedCluster, rng: Random, *, expects_conditions: bool) -> None:
        self._cluster, self._expects_conditions = cluster, expects_conditions
        self._backoff = Backoff(_RETRY, rng)
        self._wanted: dict[str, tuple[str, float]] = {}
        """The wanted status of each DaemonSet by uid, and since when."""
        self._written: dict[str, float] = {}
        self._turns = anyio.CancelScope()

    async def run(self) -> None:
        """Write each change until stopped; then leave the condition Unknown."""
        with self._turns:
            while True:
                changed = self._cluster.changed
                with anyio.move_on_after(await self.take_turn()):
                    await self._cluster.wait_change(changed)
        with anyio.move_on_after(STOP_SECONDS):
            await self._leave()

    def stop(self) -> None:
        """Write no further change, and end."""
        self._turns.cancel()

    async def take_turn(self) -> float:
        """Write what is to be written now; returns the seconds until the next turn without a change."""
        if not self._cluster.is_listed:
            return math.inf
        delays = [await self._bring(each) for each in self._judge()]
        return min(delays, default=math.inf)

    async def _bring(self, judged: Judged) -> float:
        now = anyio.current_time()
        daemon_set, wanted = judged.daemon_set, render_condition(judged.readiness)
        status, since = self._wanted.get(daemon_set.uid, ("", now))
        if status != wanted.status:
            self._wanted[daemon_set.uid] = (wanted.status, now)
            since = now
        delay = decide_write_delay(
            daemon_set.condition,
            wanted,
            wanted_status_seconds=now - since,
            unwritten_seconds=now - self._written.get(daemon_set.uid, -math.inf),
        )
        if delay is None:
            return math.inf
        if delay > 0:
            return delay
        try:
            await self._cluster.write_condition(daemon_set, wanted)
        except KubeError as error:
            _log.warning("condition_not_written", daemon_set=daemon_set.name, reason=describe_error(error))
            return self._backoff.delay_after_failure(ran_seconds=now - self._written.get(daemon_set.uid, now))
        self._written[daemon_set.uid] = now
        _log.info("condition_written", daemon_set=daemon_set.name, status=wanted.status, reason=wanted.reason)
        return math.inf

    def _judge(self) -> list[Judged]:
        return self._cluster.decide(expects_conditions=self._expects_conditions)

    async def _leave(self) -> None:
        for each in self._judge():
            if each.daemon_set.condition not in {None, UNWATCHED}:
                with suppress(KubeError):  # the API server is away, and a stop waits for nobody
                    await self._cluster.write_condition(each.daemon_set, UNWATCHED)


async def _run(arguments: argparse.Namespace, settings: Settings, credentials: Credentials) -> None:
    watchdog = ExitWatchdog(settings.shutdown.total_seconds)
    async with open_cluster(arguments, settings, credentials) as api, anyio.create_task_group() as tasks:
        spread = Random()  # noqa: S311 - spreads load, keeps no secret
        cluster = WatchedCluster(api, spread, lambda error: _log.warning("watch_lost", reason=describe_error(error)))
        expects, force = settings.kubernetes.node_condition, tasks.cancel_scope.cancel
        publisher = Publisher(cluster, spread, expects_conditions=expects)
        with Shutdown(on_stop=publisher.stop, on_force=force, on_reload=_refuse_reload, watchdog=watchdog) as shutdown:
            await tasks.start(shutdown.run)
            tasks.start_soon(cluster.follow, name="cluster")
            _log.info("publishing_started", expects_conditions=expects)
            await publisher.run()
            force()
    _log.info("publishing_stopped")


def _refuse_reload() -> None:
    _log.warning("reload_refused", reason="the settings are read at the start: start the program anew")
