"""The drain of a domain: the holders of the GPUs, and the next step about each.

Laws: who holds no GPU of the domain is asked nothing. A process without a pod is named and never ended. A budget has
the last word, except about a pod whose GPU is dead. After the deadline nobody is evicted any more.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from nodeagent.config.sections.repairers import DrainSettings
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.cordons import CordonSource, CordonTable
from nodeagent.model.drains import BoundPod, DeviceUser, DrainStep, GpuHolder, HolderStep
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import GpuUuid
from nodeagent.model.nvidia import DRIVER_DAEMONS
from nodeagent.model.repairs import Evidence, FaultSession, Rung, SessionGpu
from nodeagent.model.values import Value
from nodeagent.rules.ids import find_uuid
from nodeagent.rules.repair.sessions import Moment, find_obstacles
from nodeagent.rules.signals import Hold

DEAD: Final = frozenset({"lost", "xid-62", "xid-79", "xid-95", "xid-119", "xid-120", "xid-158", "xid-167"})
"""Faults that leave no work on the GPU: off the bus, a halted controller, silent firmware, uncontained errors."""
UNNAMED: Final = "a pod that the kubelet has yet to name"
_NAMED: Final = 4
"""Holders named one by one in a line of text."""
_COMMAND: Final = 40
"""Characters of a process's command line that are shown."""


class Closing(Value, frozen=True):
    """The times of a drain for its holders."""

    since_seconds: float | None
    """How long the GPUs have been closed to new pods and the pods told of the fault; `None` before."""
    spared: frozenset[str] = frozenset()
    """The namespaces of which no pod is asked to leave."""


def list_holders(
    domain: Iterable[SessionGpu],
    inventory: Inventory,
    holds: Iterable[Hold],
    allocations: AllocationTable | None,
    users: Iterable[DeviceUser],
) -> tuple[GpuHolder, ...]:
    """The holders of the domain: by the journal, and by the device files that processes have open."""
    uuids = {one.uuid for one in domain}
    gpus = [gpu for gpu in inventory.gpus if gpu.uuid in uuids]
    by_device: dict[str, GpuUuid] = {uuid: uuid for uuid in uuids}
    by_device.update({device: gpu.uuid for gpu in gpus for device in gpu.device_uuids})
    by_minor = {gpu.minor: gpu.uuid for gpu in gpus if gpu.minor is not None}
    held = tuple(holds)
    known = {hold.pod.uid: hold.pod for hold in held}
    pods: dict[str, set[GpuUuid]] = {}
    for hold in held:
        if hold.device in by_device:
            pods.setdefault(hold.pod.uid, set()).add(by_device[hold.device])
    others = list(_list_unnamed(allocations, known, by_device))
    for user in users:
        opened = {by_minor[minor] for minor in user.minors if minor in by_minor}
        if opened and user.pod_uid in known:
            pods.setdefault(user.pod_uid, set()).update(opened)
        elif opened and not _is_let_go(user):
            obstacle = "a person has to end it"
            others.append(GpuHolder(name=_name_process(user), gpus=frozenset(opened), obstacle=obstacle))
    named = [GpuHolder(name=known[uid].describe(), gpus=frozenset(pods[uid]), pod=known[uid]) for uid in pods]
    return (*sorted(named, key=lambda one: one.name), *others)


def _list_unnamed(
    allocations: AllocationTable | None, known: Collection[str], by_device: dict[str, GpuUuid]
) -> Iterable[GpuHolder]:
    """Allocations of pods that are not known by name: whoever has such a pod's GPU may be about to start."""
    for one in allocations.allocations if allocations is not None else ():
        gpus = frozenset(by_device[device] for device in map(find_uuid, one.devices) if device in by_device)
        if gpus and (one.pod is None or one.pod.uid not in known):
            yield GpuHolder(name=UNNAMED, gpus=gpus, obstacle="it may be about to start")


def _is_let_go(user: DeviceUser) -> bool:
    program = user.command.split(" ", 1)[0].rpartition("/")[2]
    return not user.pod_uid and program in DRIVER_DAEMONS


def _name_process(user: DeviceUser) -> str:
    of_pod = f" of the pod {user.pod_uid}" if user.pod_uid else ""
    return f"process {user.pid} ({user.command[:_COMMAND]}){of_pod}"


def find_drained(
    sessions: Sequence[FaultSession], inventory: Inventory, moment: Moment, up_to: Rung
) -> FaultSession | None:
    """The session to empty the GPUs for: the session with an act under way, else the session with the next act."""
    standing = [one for one in sessions if one.is_open and one.rung.rank <= up_to.rank]
    acting = [one for one in standing if one.under_way is not None and one.under_way.is_own]
    due = (
        one
        for one in standing
        if not find_obstacles(one, sessions, inventory, moment, holders=(), has_holder_left=True)
    )
    return next(iter((*acting, *due)), None)


def list_dead(evidence: Iterable[Evidence]) -> frozenset[GpuUuid]:
    """The GPUs on which no pod can work any more, whatever becomes of the repair."""
    return frozenset(one.gpu for one in evidence if one.key in DEAD)


def find_closed_since(
    domain: Iterable[SessionGpu],
    table: CordonTable | None,
    now_seconds: float,
    source: CordonSource = CordonSource.REPAIR,
) -> float | None:
    """Seconds since the last GPU of the domain was closed for the drain; `None` while one of them is open."""
    kept = table.by_source.get(source, ()) if table is not None else ()
    closed = {one.gpu: one.since_seconds for one in kept}
    times = [closed.get(one.uuid) for one in domain]
    known = [time for time in times if time is not None]
    if not known or len(known) < len(times):
        return None
    # A clock that was put back starts the drain anew.
    return max(0.0, now_seconds - max(known))


def decide_step(
    holder: GpuHolder, seen: BoundPod | None, told: Closing, dead: frozenset[GpuUuid], settings: DrainSettings
) -> HolderStep:
    """The next step for a holder; `seen` is the holder's pod as the API server has the pod, if it was read."""
    refusal = _refuse(holder, seen, told)
    if refusal:
        step, why = DrainStep.LEAVE, refusal
    elif seen is not None and seen.is_going:
        step, why = DrainStep.LEAVING, "it leaves with its own grace period"
    elif told.since_seconds is None:
        step, why = DrainStep.WAIT, "the GPU is not closed to new pods yet"
    elif told.since_seconds < settings.wait_seconds:
        step, why = DrainStep.WAIT, f"it is asked to leave in {settings.wait_seconds - told.since_seconds:.0f} s"
    elif seen is None:
        step, why = DrainStep.LOOK, "the API server is asked for it"
    elif told.since_seconds < settings.deadline_seconds:
        step, why = DrainStep.EVICT, "it is asked to leave"
    else:
        step, why = _decide_late(holder, dead, settings)
    return HolderStep(holder=holder, step=step, why=why)


def _decide_late(holder: GpuHolder, dead: frozenset[GpuUuid], settings: DrainSettings) -> tuple[DrainStep, str]:
    over = f"it is still there after {settings.deadline_seconds:.0f} s"
    if settings.after_deadline == "delete_where_dead" and holder.gpus & dead:
        return DrainStep.DELETE, f"{over}, on a dead GPU: it is deleted"
    return DrainStep.LATE, f"{over}: it is asked no more"


def _refuse(holder: GpuHolder, seen: BoundPod | None, told: Closing) -> str:
    """Why a holder is never asked to leave; empty for a pod that may be asked, and before its pod was read."""
    if holder.pod is None:
        return holder.obstacle
    if holder.pod.namespace in told.spared:
        return f"the pods of {holder.pod.namespace} are left alone"
    if seen is None:
        return ""
    if seen.is_static:
        return "the node's kubelet makes it from a file: move the file away"
    if seen.controller == "DaemonSet":
        return "its DaemonSet would make it again on this node: keep the DaemonSet from the node"
    return ""


def describe_steps(steps: Iterable[HolderStep]) -> str:
    """The holders in one line, each with its step in words."""
    found = tuple(steps)
    named = [f"{one.holder.name}: {one.why}" for one in found[:_NAMED]]
    more = len(found) - _NAMED
    return "; ".join((*named, *([f"and {more} more"] if more > 0 else [])))
