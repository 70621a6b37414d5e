"""`nodeagent runtime detect|plan|configure|unconfigure`; works without a running agent."""

import argparse
import difflib
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from nodeagent.app.runtime_edge import build_runtime_edge, find_shim
from nodeagent.cli.agent.settings import load_for
from nodeagent.cli.answers.output import write_answer
from nodeagent.cli.answers.table import clean, read_environment
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.components.runtime.choose import NoRuntime
from nodeagent.components.runtime.component import judge_plan, restart_and_verify, write_plan
from nodeagent.components.runtime.probe import Probe, decide_shim, probe_runtime, render_state
from nodeagent.components.runtime.prove import Proof
from nodeagent.components.runtime.withdraw import withdraw
from nodeagent.config.live import LiveSettings
from nodeagent.core.log.lines import configure_logging
from nodeagent.edge.container_runtime.host_runtime import HostRuntime
from nodeagent.model.errors import NodeagentError
from nodeagent.model.runtime import FileChange

T = TypeVar("T")


def detect(arguments: argparse.Namespace, streams: Streams) -> int:
    """The kubelet's container runtime, and whether it takes CDI devices."""
    look = _run(arguments, _look)
    state = render_state(look)
    rows = {
        "runtime": f"{state.kind} {state.version}".strip(),
        "socket": state.socket,
        "configuration": state.config_file,
        "takes CDI devices": {True: "yes", False: "no", None: ""}[state.cdi_enabled],
        "through the shim": "every container" if state.through_shim else "",
        "restart needed": state.restart_needed,
        "problem": state.problem,
    }
    document = {
        "kind": str(state.kind),
        "version": state.version,
        "socket": state.socket,
        "config_file": state.config_file,
        "cdi_enabled": state.cdi_enabled,
        "through_shim": state.through_shim,
        "restart_needed": state.restart_needed,
        "problem": state.problem,
    }
    lines = [f"{name:<18} {clean(value)}" for name, value in rows.items() if value]
    write_answer(arguments, streams, document, "\n".join(lines) + "\n")
    return ExitCode.OK if (state.cdi_enabled or state.through_shim) and not state.problem else ExitCode.UNWELL


def plan(arguments: argparse.Namespace, streams: Streams) -> int:
    """The changes of `configure`, and whether the runtime would start with them."""

    async def act(runtime: HostRuntime, live: LiveSettings) -> tuple[Probe, Proof | NodeagentError]:
        look = _require(await _look(runtime, live), live)
        try:
            return look, await judge_plan(runtime, look) if look.plan.changes else Proof()
        except NodeagentError as error:
            return look, error

    look, judged = _run(arguments, act)
    print(_render_plan(look), file=streams.out)
    if isinstance(judged, NodeagentError):
        raise CommandFailed(str(judged), ExitCode.BAD_INPUT) from judged
    if look.plan.changes:
        print(_render_proof(look, judged), file=streams.out)
    return ExitCode.OK


def configure(arguments: argparse.Namespace, streams: Streams) -> int:
    """Write the changes, and restart the runtime with `--restart`."""

    async def act(runtime: HostRuntime, live: LiveSettings) -> tuple[Probe, tuple[FileChange, ...], Proof]:
        look = _require(await _look(runtime, live), live)
        changes = look.plan.changes
        if arguments.restart and (changes or look.restart_needed):
            _require_command(look)
        proof = await write_plan(runtime, look) if changes else Proof()
        after = _require(await _look(runtime, live), live)
        if arguments.restart and after.restart_needed:
            _require_command(after)
            await restart_and_verify(runtime, live, after, changes)
            after = _require(await _look(runtime, live), live)
        return after, changes, proof

    look, changes, proof = _run(arguments, act)
    for change in changes:
        print(f"written: {change.path}", file=streams.out)
    if not changes:
        print("nothing to write", file=streams.out)
    else:
        print(_render_proof(look, proof), file=streams.out)
    if look.restart_needed:
        print(f"to bring it into force: {look.restart_needed}", file=streams.out)
    return ExitCode.OK


def unconfigure(arguments: argparse.Namespace, streams: Streams) -> int:
    """Restore the runtime's files as they were before the agent."""
    restored = _run(arguments, lambda runtime, _live: runtime.restore(withdraw))
    for path in restored.given_back:
        print(f"given back: {path}", file=streams.out)
    for path in restored.taken_out:
        print(f"taken out: our keys in {path}, which somebody else has changed since", file=streams.out)
    for path in restored.kept:
        print(f"left alone: {path} was changed by somebody else since; take our keys out by hand", file=streams.out)
    if not restored.given_back and not restored.taken_out and not restored.kept:
        print("nothing of ours is there", file=streams.out)
    return ExitCode.UNWELL if restored.kept else ExitCode.OK


def _run(arguments: argparse.Namespace, act: Callable[[HostRuntime, LiveSettings], Awaitable[T]]) -> T:
    settings = load_for(arguments, read_environment()).settings
    configure_logging(form=settings.log.format, level="error")

    async def run() -> T:
        runtime = build_runtime_edge(settings)
        try:
            return await act(runtime, LiveSettings(settings))
        finally:
            runtime.close()

    try:
        return anyio.run(run)
    except NodeagentError as error:
        raise CommandFailed(str(error), ExitCode.BAD_INPUT) from error


async def _look(runtime: HostRuntime, live: LiveSettings) -> Probe | NoRuntime:
    settings = live.now
    return await probe_runtime(runtime, settings.runtime, shim=decide_shim(settings.shim, find_shim(settings)))


def _require(look: Probe | NoRuntime, live: LiveSettings) -> Probe:
    if live.now.runtime.shim and not find_shim(live.now):
        reason = f"the runtime shim is not at {live.now.shim.program}: start the agent, which puts it there"
        raise CommandFailed(reason, ExitCode.BAD_INPUT)
    if isinstance(look, NoRuntime):
        raise CommandFailed(look.reason, ExitCode.UNREACHABLE)
    if look.plan.problem:
        raise CommandFailed(look.plan.problem, ExitCode.BAD_INPUT)
    return look


def _require_command(look: Probe) -> None:
    """Require a known restart command; Podman, without a daemon, needs no command."""
    if look.runtime.restart_advice and not look.runtime.restart_command:
        raise CommandFailed(look.runtime.restart_advice, ExitCode.BAD_INPUT)


def _render_plan(look: Probe) -> str:
    if not look.plan.changes:
        waiting = f"; to bring the files into force: {look.restart_needed}" if look.restart_needed else ""
        return f"nothing to change{waiting}"
    parts = [line for change in look.plan.changes for line in _diff(change)]
    command = look.runtime.restart_advice or "nothing, the files are read at every start"
    return "\n".join([*parts, f"afterwards: {command}"])


def _render_proof(look: Probe, proof: Proof) -> str:
    if proof.unproved:
        return f"not proved by a start on the side: {proof.unproved}"
    runtimes = ", ".join(proof.handlers)
    return f"proved: {look.runtime.kind} {look.runtime.version} comes up with it on the side, runtimes: {runtimes}"


def _diff(change: FileChange) -> list[str]:
    before, after = (
        (content or b"").decode("utf-8", "replace").splitlines() for content in (change.before, change.after)
    )
    old = change.path if change.before is not None else "/dev/null"
    return list(difflib.unified_diff(before, after, old, change.path, lineterm=""))
