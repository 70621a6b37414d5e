"""The source of GPUs for the `gpu` commands: the running agent, or the hardware itself without an agent."""

import argparse
import platform
from collections.abc import Mapping

import anyio

from nodeagent.app.hardware import Hardware, choose_hardware
from nodeagent.cli.answers.answer import Answerer, NoAgent
from nodeagent.cli.answers.asking import API
from nodeagent.cli.answers.client import find_agent
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed
from nodeagent.components.web.api.records import ConditionRecord, GpuRecord, GpusRecord, StateRecord
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.core.log.lines import configure_logging
from nodeagent.model.allocation import Allocation
from nodeagent.model.errors import DriverError
from nodeagent.model.gpu import GpuReadout
from nodeagent.model.ids import DeviceId
from nodeagent.rules.offer.resources import list_free

ABSENT = frozenset({"gpu-missing", "gpu-vanished", "gpus-all-gone", "gpus-fewer-than-expected"})
BLIND = frozenset(
    {
        "sample-stale",
        "inventory-stale",
        "health-unwatched",
        "driver-stuck",
        "driver-version-mismatch",
        "driver-no-permission",
    }
)
TROUBLES = ABSENT | BLIND | {"nvml-worker-left-behind"}
"""Conditions to know for the health of GPUs: GPUs without a verdict, and old verdicts."""


def read_gpus(
    arguments: argparse.Namespace, settings: Settings, environ: Mapping[str, str]
) -> tuple[Answerer, GpusRecord]:
    """The answering source and the node's GPUs; a source on the command line is asked itself, despite an agent."""
    if not getattr(arguments, "gpus", None):
        try:
            return read_judged(settings, environ)
        except CommandFailed as error:
            if error.code is not ExitCode.UNREACHABLE:
                raise
    return NoAgent(), _read_hardware(settings)


def read_free(
    arguments: argparse.Namespace, settings: Settings, environ: Mapping[str, str]
) -> frozenset[DeviceId] | None:
    """The devices that the kubelet may hand out now; `None` without an agent, or for an unknown kubelet state."""
    if getattr(arguments, "gpus", None):
        return None
    try:
        state = find_agent(settings, environ).read(f"{API}/state", StateRecord)
    except CommandFailed as error:
        if error.code is not ExitCode.UNREACHABLE:
            raise
        return None
    if state.plugin is None or state.plugin.account is None:
        return None
    return list_free(state.plugin, state.allocations)


def read_judged(settings: Settings, environ: Mapping[str, str]) -> tuple[Answerer, GpusRecord]:
    """The node's GPUs with the agent's verdicts; the agent first."""
    agent = find_agent(settings, environ)
    return agent, agent.read(f"{API}/gpus", GpusRecord)


def read_troubles(
    settings: Settings, environ: Mapping[str, str], *, of_absence: bool = True
) -> tuple[ConditionRecord, ...]:
    """Conditions beside the verdicts, with `of_absence` also of missing GPUs; empty without an agent."""
    wanted = TROUBLES if of_absence else TROUBLES - ABSENT
    try:
        conditions = find_agent(settings, environ).read(f"{API}/conditions", tuple[ConditionRecord, ...])
    except CommandFailed:
        return ()
    return tuple(condition for condition in conditions if condition.code in wanted)


def read_pods(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """Namespace and name by pod uid, as far as a running agent knows; empty without an agent."""
    try:
        allocations = find_agent(settings, environ).read(f"{API}/allocations", tuple[Allocation, ...])
    except CommandFailed:
        return {}
    return {one.pod.uid: f"{one.pod.namespace}/{one.pod.name}" for one in allocations if one.pod and one.pod.uid}


def _read_hardware(settings: Settings) -> GpusRecord:
    configure_logging(form=settings.log.format, level="error")
    try:
        hardware = choose_hardware(LiveSettings(settings), settings.node.name or platform.node(), seed=1)
        readout = anyio.run(_enumerate, hardware)
    except DriverError as error:
        raise CommandFailed(f"no agent runs, and the GPUs cannot be read: {error}", ExitCode.NO_DRIVER) from error
    return GpusRecord(
        generation=0,
        gpus=tuple(GpuRecord(gpu=gpu) for gpu in readout.gpus),
        pairs=readout.pairs,
        switches=readout.switches,
        missing=readout.missing,
    )


async def _enumerate(hardware: Hardware) -> GpuReadout:
    failed: DriverError | None = None
    readout = GpuReadout()
    async with anyio.create_task_group() as tasks:
        await tasks.start(hardware.run)
        try:
            readout = await hardware.gpus.read_inventory()
        except DriverError as error:
            failed = error  # raised outside, so that no group of errors wraps it
        tasks.cancel_scope.cancel()
    if failed is not None:
        raise failed
    return readout
