"""The plan of each session in words, and why a GPU has no session."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from nodeagent.model.gpu import Gpu, Inventory
from nodeagent.model.health import HealthReport, Verdict
from nodeagent.model.ids import GpuUuid
from nodeagent.model.repairs import FaultSession, Rung, SessionGpu, SessionPlan
from nodeagent.rules.repair.acts import ACT, Reach, refuse_act
from nodeagent.rules.repair.domains import find_domain, list_pods
from nodeagent.rules.repair.findings import Findings
from nodeagent.rules.repair.sessions import Moment, find_obstacles
from nodeagent.rules.signals import Hold

_ACTS: Final[Mapping[Rung, str]] = {
    Rung.DRAIN: "drain {gpus} and read the driver's recovery action again",
    Rung.RESET: "reset {gpus}",
    Rung.BUS_RESET: "reset the bus of {gpus}",
    Rung.RELOAD_DRIVER: "reload the driver for {gpus}",
    Rung.REBOOT: "request a reboot of the node for {gpus}",
    Rung.SERVICE: "ask for service of {gpus}",
}


def plan_sessions(
    sessions: Sequence[FaultSession],
    inventory: Inventory,
    holds: Iterable[Hold],
    moment: Moment,
    mode: str,
    reach: Reach | None = None,
) -> tuple[SessionPlan, ...]:
    """The plan of each open session; `reach` is how far mode act goes."""
    held = tuple(holds)
    return tuple(
        _plan(session, sessions, inventory, held, moment, mode, reach or Reach())
        for session in sessions
        if session.is_open
    )


def _plan(
    session: FaultSession,
    sessions: Sequence[FaultSession],
    inventory: Inventory,
    holds: Sequence[Hold],
    moment: Moment,
    mode: str,
    reach: Reach,
) -> SessionPlan:
    domain = find_domain(session, session.rung, inventory)
    pods = list_pods(domain, inventory, holds)
    act = _ACTS[session.rung].format(gpus=name_gpus(session.gpus, inventory))
    ours = refuse_act(session, pods, reach, inventory) if mode == ACT else (f"mode is {mode}", *reach.left_to_others)
    has_left = session.number in reach.left
    others = find_obstacles(session, sessions, inventory, moment, holders=pods, has_holder_left=has_left)
    obstacles = (*ours, *others)
    return SessionPlan(
        session=session.number,
        rung=session.rung,
        gpus=tuple(gpu.uuid for gpu in domain),
        pods=pods,
        sentence=_word(act, session, obstacles),
        obstacles=obstacles,
    )


def _word(act: str, session: FaultSession, obstacles: Sequence[str]) -> str:
    if session.under_way is not None and session.under_way.is_own:
        return f"{act}: the attempt is under way"
    return f"would {act}; {obstacles[0]}" if obstacles else f"about to {act}"


def name_gpus(gpus: Iterable[SessionGpu], inventory: Inventory) -> str:
    """`GPU 3`, or `GPUs 3, 5`: the present indexes, and for a GPU that is gone its last."""
    present = {gpu.uuid: gpu.index for gpu in inventory.gpus}
    indexes = sorted({present.get(gpu.uuid, gpu.index) for gpu in gpus})
    return f"GPU{'s' if len(indexes) > 1 else ''} {', '.join(map(str, indexes))}"


def explain_absences(
    sessions: Iterable[FaultSession], inventory: Inventory, report: HealthReport, findings: Findings, unsettled: str
) -> Mapping[GpuUuid, str]:
    """Why each GPU without an open session has none."""
    covered = frozenset[GpuUuid]().union(*(session.uuids for session in sessions if session.is_open))
    return {gpu.uuid: _explain(gpu, report, findings, unsettled) for gpu in inventory.gpus if gpu.uuid not in covered}


def _explain(gpu: Gpu, report: HealthReport, findings: Findings, unsettled: str) -> str:
    judged = report.find_device(gpu.uuid)
    if judged is None or gpu.uuid not in findings.answered:
        return findings.blind or "there is no verdict on the GPU yet"
    asked = [one.key for one in findings.evidence if one.gpu == gpu.uuid]
    if asked and unsettled:
        return f"{', '.join(asked)}: {unsettled}"
    if asked:
        return f"{', '.join(asked)}: reported before the last repair of the GPU, and not found since"
    others = [f"{one.key}: {one.remedy.sentence}" for one in judged.findings]
    if others:
        return f"no repair of the agent mends it: {'; '.join(others)}"
    return "no fault is known" if judged.verdict is Verdict.HEALTHY else judged.reason
