"""`nodeagent audit`."""

import argparse
import time
from datetime import UTC, datetime

from nodeagent.cli.agent.settings import load_for_looking
from nodeagent.cli.answers.output import write_table
from nodeagent.cli.answers.table import Table, clean, read_environment
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.core.log.audit import Change
from nodeagent.edge.host.errors import HostError
from nodeagent.edge.host.files.audit_file import read_audit

HEAD = ("TIME", "KIND", "NAME", "ACTION", "OUTCOME", "DETAIL")
GIVING_WAY = ("KIND", "DETAIL")


def run(arguments: argparse.Namespace, streams: Streams) -> int:
    """The changes made outside itself by the agent of this machine."""
    if arguments.last < 1:
        raise CommandFailed(f"--last {arguments.last}: give a number of 1 or more", ExitCode.BAD_INPUT)
    settings = load_for_looking(arguments, read_environment(arguments))
    try:
        changes = read_audit(settings.node.state_dir)
    except HostError as error:
        raise CommandFailed(f"{error}; only root and the agent's user may read it", ExitCode.BAD_INPUT) from error
    since = 0.0 if arguments.since is None else time.time() - arguments.since
    chosen = [
        change for change in changes if change.at >= since and (arguments.of is None or change.kind == arguments.of)
    ][-arguments.last :]
    nothing = f"nothing noted in {settings.node.state_dir}"
    rows = [_render(change) for change in chosen]
    write_table(arguments, streams, chosen, Table(HEAD, rows, giving_way=GIVING_WAY, wide=("DETAIL",), nothing=nothing))
    return ExitCode.OK


def _render(change: Change) -> tuple[str, ...]:
    when = datetime.fromtimestamp(change.at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    missed = f" (before it, {change.missed} changes were not noted)" if change.missed else ""
    texts = (change.name, change.action, change.outcome + missed, change.detail)
    return (when, change.kind, *map(clean, texts))
