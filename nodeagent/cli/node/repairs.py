"""`nodeagent repairs list`, `nodeagent repairs explain` and `nodeagent repairs why-not`."""

import argparse
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime

from nodeagent.cli.answers.asking import ask
from nodeagent.cli.answers.output import write_answer, write_table
from nodeagent.cli.answers.table import Table
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.components.web.api.records import GpusRecord
from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import GpuUuid
from nodeagent.model.repairs import Attempt, FaultSession, RepairState, SessionPlan
from nodeagent.model.values import Value
from nodeagent.model.wording import render_age

HEAD = ("SESSION", "GPUS", "CAUSE", "RUNG", "STATE", "FOR", "PLAN")
OFF = "repairs are off: `repairs.mode: observe` has the agent say what it would do"


class WhyNot(Value, frozen=True):
    """The reasons why nothing is done about a GPU."""

    gpu: GpuUuid
    session: int | None
    """`None` for a GPU without an open session."""
    plan: str
    reasons: tuple[str, ...]


def show(arguments: argparse.Namespace, streams: Streams) -> int:
    """Every session with its plan."""
    agent, state = ask(arguments, "repairs", RepairState)
    table = tabulate(state, _name_gpus(_ask_gpus(arguments)), now_seconds=time.time())
    write_table(arguments, streams, state, table, list(_describe_state(state)), agent)
    return ExitCode.OK


def _describe_state(state: RepairState) -> Iterator[str]:
    if state.mode == "off":
        yield OFF
    elif state.unsettled:
        yield state.unsettled


def _name_gpus(gpus: Iterable[Gpu]) -> dict[str, str]:
    return {str(gpu.uuid): str(gpu.index) for gpu in gpus}


def _ask_gpus(arguments: argparse.Namespace) -> list[Gpu]:
    return [record.gpu for record in ask(arguments, "gpus", GpusRecord)[1].gpus]


def tabulate(state: RepairState, names: Mapping[str, str], *, now_seconds: float) -> Table:
    """A line for each session."""
    plans = {plan.session: plan.sentence for plan in state.plans}
    rows = [
        (
            str(session.number),
            ",".join(names.get(gpu.uuid, f"{gpu.index} (gone)") for gpu in session.gpus),
            session.cause,
            session.rung,
            session.ending or "open",
            render_age(now_seconds - session.opened_seconds),
            plans.get(session.number, "-"),
        )
        for session in state.sessions
    ]
    return Table(HEAD, rows, giving_way=("PLAN",), nothing="no fault session on this node")


def explain(arguments: argparse.Namespace, streams: Streams) -> int:
    """One session in full."""
    agent, state = ask(arguments, "repairs", RepairState)
    gpus = _ask_gpus(arguments)
    session = find_session(state, arguments.name, gpus)
    plan = next((plan for plan in state.plans if plan.session == session.number), None)
    lines = list(describe_session(session, plan, _name_gpus(gpus)))
    write_answer(arguments, streams, session, "".join(f"{line}\n" for line in lines), agent)
    return ExitCode.OK


def find_session(state: RepairState, name: str, gpus: list[Gpu]) -> FaultSession:
    """The session of a number, or else the first one of a GPU: the open one before the closed ones.

    Raises:
        CommandFailed: No such session.
    """
    named = [session for session in state.sessions if str(session.number) == name]
    uuids = {gpu.uuid for gpu in gpus if name in _list_names(gpu)} | {name}
    of_gpu = [session for session in state.sessions if uuids & session.uuids]
    found = next(iter([*named, *of_gpu]), None)
    if found is None:
        hint = OFF if state.mode == "off" else "`nodeagent repairs list` has all sessions, `why-not` the reasons"
        raise CommandFailed(f"no fault session {name}, and none of a GPU {name}: {hint}", ExitCode.BAD_INPUT)
    return found


def _list_names(gpu: Gpu) -> tuple[str, ...]:
    return str(gpu.index), gpu.uuid, gpu.pci.address


def describe_session(session: FaultSession, plan: SessionPlan | None, names: Mapping[str, str]) -> Iterator[str]:
    """The session's story, then its plan."""
    yield f"session {session.number}  {session.ending or 'open'}, rung {session.rung}"
    for gpu in session.gpus:
        yield f"  gpu        {names.get(gpu.uuid, f'{gpu.index} (gone)')}  {gpu.uuid}  {gpu.address}  board {gpu.board}"
    yield f"  opened     {_render_time(session.opened_seconds)} by {session.cause}"
    for one in session.evidence:
        name = names.get(one.gpu, "gone")
        yield f"  fault      {one.key} of GPU {name}, {_render_time(one.seen_seconds)}: asks for {one.rung}"
    for attempt in session.attempts:
        yield f"  attempt    {_describe_attempt(attempt)}"
    if session.closed_seconds is not None:
        yield f"  closed     {_render_time(session.closed_seconds)}, {session.ending}"
    if plan is not None:
        yield f"  plan       {plan.sentence}"
        yield from (f"  must leave {pod}" for pod in plan.pods)
        yield from (f"  not done   {obstacle}" for obstacle in plan.obstacles)


def _describe_attempt(attempt: Attempt) -> str:
    ended = attempt.outcome or "has not ended"
    return f"{_render_time(attempt.began_seconds)} {attempt.rung}: {'; '.join(filter(None, (ended, attempt.detail)))}"


def _render_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def why_not(arguments: argparse.Namespace, streams: Streams) -> int:
    """The reasons why nothing is done about a GPU."""
    agent, state = ask(arguments, "repairs", RepairState)
    gpu = next((gpu for gpu in _ask_gpus(arguments) if arguments.gpu in _list_names(gpu)), None)
    if gpu is None:
        problem = f"no GPU {arguments.gpu}: name it by index, UUID or PCI address, see `nodeagent gpu list`"
        raise CommandFailed(problem, ExitCode.BAD_INPUT)
    answer = find_reasons(state, gpu)
    about = f"session {answer.session} {answer.plan}" if answer.session is not None else "no session"
    lines = [f"GPU {gpu.index}  {about}", *(f"  because    {reason}" for reason in answer.reasons)]
    write_answer(arguments, streams, answer, "".join(f"{line}\n" for line in lines), agent)
    return ExitCode.OK


def find_reasons(state: RepairState, gpu: Gpu) -> WhyNot:
    """The obstacles of the GPU's open session, or why there is none."""
    session = next((one for one in state.sessions if one.is_open and gpu.uuid in one.uuids), None)
    plan = next((one for one in state.plans if session is not None and one.session == session.number), None)
    if session is not None and plan is not None:
        return WhyNot(gpu=gpu.uuid, session=session.number, plan=plan.sentence, reasons=plan.obstacles)
    reason = OFF if state.mode == "off" else state.reasons.get(gpu.uuid) or state.unsettled or "no verdict yet"
    return WhyNot(gpu=gpu.uuid, session=None, plan="", reasons=(reason,))
