"""`nodeagent uninstall`: leaves the node as it was before the agent came.

Owns the order: files and labels with other readers first (runtime configuration, specifications, labels), the agent's
own memory last, so that a broken uninstall can be run again. Refuses to work beside a running agent, which would put
everything back, and to remove packages, units and configuration files: their installer removes them.
"""

import argparse
from collections.abc import Iterable, Iterator, Mapping

import anyio

from nodeagent.cli.agent.settings import load_in_force
from nodeagent.cli.answers.output import wants_record, write_table
from nodeagent.cli.answers.table import Table, read_environment
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.cli.uninstall.claims import find_claims, remove_metadata, remove_receipts
from nodeagent.cli.uninstall.cluster import remove_from_cluster
from nodeagent.cli.uninstall.fractions import find_kept, remove_fractions
from nodeagent.cli.uninstall.mps import end_daemons
from nodeagent.cli.uninstall.steps import (
    Outcome,
    Step,
    hold_state,
    list_stopped,
    remove_cdi,
    remove_features,
    remove_markers,
    remove_run_dir,
    remove_shim,
    remove_sockets,
    remove_state,
    restore_runtime,
)
from nodeagent.config.schema import Settings
from nodeagent.core.log.lines import configure_logging
from nodeagent.edge.host.errors import HostError


def run(arguments: argparse.Namespace, streams: Streams) -> int:
    """Undo everything that the agent did to this node."""
    environ = read_environment()
    settings = load_in_force(arguments, environ)[0].settings
    configure_logging(form=settings.log.format, level="error")
    dry = bool(arguments.dry_run)
    try:
        with hold_state(settings.node.state_dir):
            kept, claims = find_kept(settings, environ), find_claims(settings, environ)
            outcomes = [
                *_undo(settings, claims | kept, dry=dry),
                *anyio.run(lambda: remove_from_cluster(settings, environ, dry=dry)),
            ]
            if not arguments.keep_state:
                outcomes += remove_fractions(settings, kept, dry=dry)
                outcomes += remove_metadata(settings, claims, dry=dry)
                outcomes += remove_receipts(settings, kept, claims, dry=dry)
                gone = {each.what for each in outcomes if each.step is Step.REMOVED}
                outcomes += remove_state(settings, claims, dry=dry, gone=gone)
    except HostError as error:
        advice = "stop the agent first: systemctl disable --now nodeagent"
        raise CommandFailed(f"{error}; {advice}", ExitCode.BAD_INPUT) from error
    if arguments.keep_state:
        outcomes.append(Outcome(Step.KEPT, str(settings.node.state_dir), "journal and verdicts, as asked"))
    _put_out(outcomes, arguments, streams)
    return ExitCode.UNWELL if any(outcome.step is Step.FAILED for outcome in outcomes) else ExitCode.OK


def _undo(settings: Settings, kept: Mapping[str, str], *, dry: bool) -> Iterator[Outcome]:
    yield from end_daemons(settings, dry=dry)
    yield from list_stopped(settings)
    yield from restore_runtime(settings, dry=dry)
    yield from remove_shim(settings, dry=dry)
    yield from remove_cdi(settings, kept, dry=dry)
    yield from remove_markers(settings, dry=dry)
    yield from remove_features(settings, dry=dry)
    yield from remove_sockets(settings, dry=dry)
    yield from remove_run_dir(settings, dry=dry)


def _put_out(outcomes: Iterable[Outcome], arguments: argparse.Namespace, streams: Streams) -> None:
    found, dry = list(outcomes), bool(arguments.dry_run)
    if dry and not wants_record(arguments):
        print("nothing was changed; this is what would be:", file=streams.out)
    steps = [{"step": each.step, "what": each.what, "detail": each.detail} for each in found]
    rows = [[each.step, each.what, each.detail] for each in found]
    table = Table(["STEP", "WHAT", "DETAIL"], rows, nothing="nothing of the agent is left on this node")
    write_table(arguments, streams, {"dry_run": dry, "steps": steps}, table)
