"""`nodeagent claims slices`: this node's devices as schedulers see them."""

import argparse
from collections.abc import Iterator, Mapping

from nodeagent.cli.answers.asking import ask
from nodeagent.cli.answers.output import write_table
from nodeagent.cli.answers.table import Table
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import Streams
from nodeagent.components.web.api.claims import ClaimsRecord, SlicesRecord
from nodeagent.model.slices import PublishedSlices, SliceDevice
from nodeagent.model.wording import render_bytes

HEAD = ("DEVICE", "TYPE", "MEMORY", "CLAIMS", "TAINTS")
NOTHING = "schedulers are told of no device of this node"


def show(arguments: argparse.Namespace, streams: Streams) -> int:
    """Every device for claims, with its taints and its claims."""
    agent, slices = ask(arguments, "slices", SlicesRecord)
    _, claims = ask(arguments, "claims", ClaimsRecord)
    table = tabulate(slices, list_holders(claims))
    write_table(arguments, streams, slices, table, list(describe_standing(slices.published)), agent)
    return ExitCode.OK


def list_holders(claims: ClaimsRecord) -> dict[str, list[str]]:
    """The claims of each device."""
    found: dict[str, list[str]] = {}
    for record in claims.prepared:
        for device in record.claim.devices:
            found.setdefault(device.device, []).append(record.claim.describe())
    return found


def tabulate(slices: SlicesRecord, holders: Mapping[str, list[str]]) -> Table:
    """A line for each device, in the schedulers' order."""
    rows = [_cells(device, holders) for content in slices.slices for device in content.devices]
    return Table(HEAD, rows, giving_way=("TAINTS", "CLAIMS"), nothing=NOTHING)


def _cells(device: SliceDevice, holders: Mapping[str, list[str]]) -> tuple[str, ...]:
    memory = device.capacity.get("memory")
    return (
        device.name,
        _describe_type(device),
        "-" if memory is None else render_bytes(memory.value),
        ", ".join(dict.fromkeys(holders.get(device.name, ()))) or "-",
        ", ".join(f"{taint.key.rpartition('/')[2]}:{taint.effect}" for taint in device.taints) or "-",
    )


def _describe_type(device: SliceDevice) -> str:
    if "parentUUID" not in device.attributes:
        return "GPU, shared" if device.is_shared else "GPU"
    profile = f"MIG {device.attributes.get('profile', 'device')}"
    return profile if "uuid" in device.attributes else f"{profile}, on demand"


def describe_standing(published: PublishedSlices | None) -> Iterator[str]:
    """The published pool, and whether the API server has all of it."""
    if published is None:
        yield "nothing has been told so far: `claims.enabled` is off, or `nodeagent status` says what is waited for"
        return
    yield published.describe()
    if published.problem:
        yield f"the API server does not have all of it: {published.problem}"
