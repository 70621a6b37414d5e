"""`nodeagent claims` and `nodeagent claims explain`."""

import argparse
import time
from collections.abc import Iterator, Mapping

from nodeagent.cli.answers.asking import ask, ask_device_names
from nodeagent.cli.answers.output import write_answer, write_table
from nodeagent.cli.answers.table import Table
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.components.web.api.claims import ClaimHolder, ClaimRecord, ClaimsRecord, RefusedRecord
from nodeagent.model.journal import PreparedClaim, PreparedDevice, SharingWay
from nodeagent.model.wording import render_age, render_bytes, suggest

HEAD = ("CLAIM", "STATE", "FOR", "DEVICES", "GPUS", "PODS")
READY, MAKING, REFUSED = "ready", "being made", "refused"
MIB = 1 << 20


def show(arguments: argparse.Namespace, streams: Streams) -> int:
    """The ready claims with their pods, and the refused claims."""
    agent, claims = ask(arguments, "claims", ClaimsRecord)
    table = tabulate(claims, ask_device_names(arguments), now_seconds=time.time())
    write_table(arguments, streams, claims, table, list(describe_standing(claims)), agent)
    return ExitCode.OK


def describe_standing(claims: ClaimsRecord) -> Iterator[str]:
    """The DRA driver's state, where worth a line."""
    standing = claims.standing
    if standing is None:
        yield "claims are not served: `claims.enabled` is off, or the part is starting"
    elif not standing.registered:
        why = standing.last_error or "it has not registered the agent's socket so far, see `nodeagent status`"
        yield f"the kubelet does not know the driver {standing.driver}: {why}"


def tabulate(claims: ClaimsRecord, names: Mapping[str, str], *, now_seconds: float) -> Table:
    """A line for each claim; refused claims come last."""
    rows = [_cells(record, names, now_seconds) for record in claims.prepared]
    rows += [(one.claim, REFUSED, render_age(now_seconds - one.since_seconds), "-", "-", "-") for one in claims.refused]
    return Table(HEAD, rows, giving_way=("DEVICES", "FOR"), nothing="no claim is ready on this node")


def _cells(record: ClaimRecord, names: Mapping[str, str], now_seconds: float) -> tuple[str, ...]:
    claim = record.claim
    gpus = dict.fromkeys(names.get(device.uuid or device.gpu, "gone") for device in claim.devices)
    return (
        claim.describe(),
        READY if claim.is_ready else MAKING,
        render_age(now_seconds - claim.since_seconds),
        ",".join(device.device for device in claim.devices),
        ",".join(gpus),
        ", ".join(map(_describe_holder, record.holders)) or "-",
    )


def _describe_holder(holder: ClaimHolder) -> str:
    pod = f"{holder.pod.namespace}/{holder.pod.name}"
    return f"{pod} ({holder.container})" if holder.container else pod


def explain(arguments: argparse.Namespace, streams: Streams) -> int:
    """A claim's devices, sharing and MIG devices made on demand, or why the claim is refused."""
    agent, claims = ask(arguments, "claims", ClaimsRecord)
    prepared = tuple(one for one in claims.prepared if arguments.name in _names(one.claim))
    refused = tuple(one for one in claims.refused if arguments.name in (one.claim, one.claim.partition("/")[2]))
    if not prepared and not refused:
        known = [*(one.claim.describe() for one in claims.prepared), *(one.claim for one in claims.refused)]
        hint = suggest(arguments.name, known) or "; `nodeagent claims` lists those that are"
        problem = f"no claim {arguments.name} is ready or refused on this node{hint}"
        raise CommandFailed(problem, ExitCode.BAD_INPUT)
    lines = [line for one in prepared for line in explain_prepared(one)]
    lines += [line for one in refused for line in explain_refused(one)]
    found = ClaimsRecord(standing=claims.standing, prepared=prepared, refused=refused)
    write_answer(arguments, streams, found, "".join(f"{line}\n" for line in lines), agent)
    return ExitCode.OK


def _names(claim: PreparedClaim) -> tuple[str, ...]:
    """Every accepted name of a claim."""
    return claim.describe(), claim.name, claim.uid


def explain_prepared(record: ClaimRecord) -> Iterator[str]:
    """The details of a prepared claim."""
    claim = record.claim
    yield f"{claim.describe()}  {READY if claim.is_ready else MAKING}"
    yield f"  uid        {claim.uid}"
    for holder in record.holders:
        yield f"  held by    {_describe_holder(holder)}"
    for device in claim.devices:
        yield f"  device     {device.device} of pool {device.pool}, for request {', '.join(device.requests)}"
        for line in _explain_device(device):
            yield f"             {line}"


def _explain_device(device: PreparedDevice) -> Iterator[str]:
    yield device.uuid or f"a MIG device of {device.gpu} that is still to be made"
    if device.is_admin:
        yield "to be looked at, beside whoever has it"
    if device.is_made:
        yield "made for this claim, and taken away with it"
    if device.part is not None:
        size = device.part.memory_bytes
        yield f"a share: {device.part.cores} cores, {render_bytes(size) if size else 'no memory of its own'}"
    sharing = device.sharing
    if sharing is not None and sharing.way is SharingWay.TIME_SLICING:
        yield f"its containers take turns, time slice {sharing.interval}"
    elif sharing is not None and sharing.mps is not None:
        percentage, memory = sharing.mps.thread_percentage, sharing.mps.memory_mib.get(device.gpu)
        limits = [f"{percentage} % of its threads each"] if percentage is not None else []
        limits += [f"{render_bytes(memory * MIB)} each"] if memory is not None else []
        limits += ["several users at once"] if sharing.mps.multi_user else []
        yield f"its containers share it by MPS{': ' if limits else ''}{', '.join(limits)}"
    for name in device.cdi_names:
        yield f"told to the runtime as {name}"


def explain_refused(record: RefusedRecord) -> Iterator[str]:
    """Why the claim is refused."""
    yield f"{record.claim}  {REFUSED}"
    yield f"  because    {record.reason}"
