"""The receipt's two files: `gpus.json`, the container's devices, and `faults.json`, whatever has happened to them.

Owns the numbers of the devices, which stay as at the container's start even where a GPU vanishes; the blame of a fault;
and the word on another start. Refuses a word about any other container: no process, no pod, no reason of a verdict.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from nodeagent.model.allocation import Allocation, AllocationTable
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.events import GpuFaultReported
from nodeagent.model.gpu import Gpu, Inventory
from nodeagent.model.health import HealthReport, Verdict
from nodeagent.model.journal import Enforcement, FractionTable
from nodeagent.model.proof import GpuProofs, ProofRecord
from nodeagent.model.values import Value
from nodeagent.rules.container_receipts import name_allocation_receipt, name_claim_receipt, name_fraction_receipt
from nodeagent.rules.ids import find_uuid, is_of_class
from nodeagent.rules.signals import Severity, find_severity

GPUS, FAULTS = "gpus.json", "faults.json"
VERSION: Final = 1
LINES_MAX: Final = 32
"""Faults in a file; the oldest goes first, so that the file stays small."""


class Holding(Value, frozen=True):
    """Devices of one receipt, and how many may be to blame for a fault of a program."""

    devices: tuple[str, ...]
    users: int = 1
    """Pods of a claim; 1 for a container's own devices."""


class ReceiptGpu(Value, frozen=True, omit_defaults=True):
    """A device as its container numbers it: by the driver's order of the visible devices."""

    index: int
    uuid: str
    gpu: str
    """The GPU itself; of a MIG device the GPU with the MIG device."""
    name: str
    slot: str
    """The PCI address of the GPU."""
    profile: str = ""
    """Of a MIG device."""
    proof: str = ""
    """The stage of the newest idle-time proof that the GPU passed before the container got it."""
    proven: str = ""
    """The time of that proof."""


class GpusFile(Value, frozen=True):
    """The content of `gpus.json`."""

    version: int = VERSION
    gpus: tuple[ReceiptGpu, ...] = ()


class Blame(StrEnum):
    """What a fault is a fault of."""

    HARDWARE = "hardware"
    APPLICATION = "application"
    UNKNOWN = "unknown"


class AgentAction(StrEnum):
    """What the agent does about a device."""

    NOTHING = "nothing"
    WITHHOLDS = "withholds"
    """New containers do not get the device."""


class DeviceStanding(Value, frozen=True, omit_defaults=True):
    """A device after a fault: what the agent does, and whether another start makes sense."""

    index: int
    uuid: str
    restart_here: bool
    agent: AgentAction
    since: str = ""
    """When the agent began to withhold the device."""
    returns: str = ""
    """Whether and when the agent gives the device again, in words."""


class FaultLine(Value, frozen=True):
    """A fault of devices, with its repetitions."""

    kind: str
    """`xid`, or `sxid` for a fault of an NVSwitch."""
    number: int
    name: str
    devices: tuple[int, ...]
    blame: Blame
    count: int
    first: str
    last: str


class FaultsFile(Value, frozen=True):
    """The content of `faults.json`."""

    version: int = VERSION
    devices: tuple[DeviceStanding, ...] = ()
    faults: tuple[FaultLine, ...] = ()


_BLAMES: Final = {
    Severity.CRITICAL: Blame.HARDWARE,
    Severity.USER: Blame.APPLICATION,
    Severity.WARN: Blame.UNKNOWN,
}


def list_holdings(
    allocations: AllocationTable | None, fractions: FractionTable | None, claims: ReadyClaims | None
) -> dict[str, Holding]:
    """All receipts of the node by the names of their folders; devices of other vendors' classes have none."""
    whole = allocations.allocations if allocations is not None else ()
    bindings = fractions.bindings.values() if fractions is not None else ()
    prepared = claims.claims.values() if claims is not None else ()
    return {
        **_list_whole(whole),
        **{
            name_fraction_receipt(each): Holding(devices=_unique(part.gpu for part in each.parts))
            for each in bindings
            if each.enforcement is not Enforcement.COUNTED
        },
        **{
            name_claim_receipt(each.uid): Holding(
                devices=_unique(device.uuid or device.gpu for device in each.devices if not device.is_admin),
                users=max(1, len(each.pods)),
            )
            for each in prepared
        },
    }


def _list_whole(allocations: Iterable[Allocation]) -> dict[str, Holding]:
    """A container with several resources has a folder for each, of which one is mounted: all have all devices.

    Devices of one resource given twice are from before and after the kubelet lost its checkpoint, and stay apart.
    """
    by_holder: dict[object, dict[str, Allocation]] = {}
    for each in allocations:
        is_named = each.pod is not None and bool(each.pod.name and each.container)
        holder = (each.pod, each.container) if is_named else each.number
        if each.resource in by_holder.get(holder, {}):
            holder = each.number
        by_holder.setdefault(holder, {})[each.resource] = each
    found: dict[str, Holding] = {}
    for held in by_holder.values():
        devices = _unique(find_uuid(one) for each in held.values() for one in each.devices if not is_of_class(one))
        found |= {name_allocation_receipt(each): Holding(devices=devices) for each in held.values() if devices}
    return found


def _unique(devices: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(devices))


def count_users(holdings: Iterable[Holding]) -> Counter[str]:
    """How many containers or pods have each device."""
    users = Counter[str]()
    for each in holdings:
        users.update(dict.fromkeys(each.devices, each.users))
    return users


def number_gpus(
    devices: Iterable[str], inventory: Inventory, proofs: GpuProofs | None = None
) -> tuple[ReceiptGpu, ...]:
    """The devices as a container with exactly these numbers them; empty where a device is not known (yet, any more)."""
    records = proofs.gpus if proofs is not None else {}
    found: list[tuple[tuple[int, int], str, Gpu, str]] = []
    for uuid in devices:
        gpu = inventory.find_gpu(uuid)
        if gpu is None:
            return ()
        places = {str(each.uuid): (each.index, each.profile) for each in gpu.mig_devices}
        mig_index, profile = places.get(uuid, (0, ""))
        found.append(((gpu.index, mig_index), uuid, gpu, profile))
    return tuple(
        ReceiptGpu(
            index=index,
            uuid=uuid,
            gpu=gpu.uuid,
            name=gpu.name,
            slot=gpu.pci.address,
            profile=profile,
            **_describe_proof(records.get(gpu.uuid)),
        )
        for index, (_, uuid, gpu, profile) in enumerate(sorted(found, key=lambda one: one[0]))
    )


def _describe_proof(record: ProofRecord | None) -> dict[str, str]:
    if record is None or record.newest_pass is None:
        return {}
    level, seconds = record.newest_pass
    return {"proof": level.value, "proven": render_time(seconds)}


def note_fault(
    lines: tuple[FaultLine, ...],
    gpus: Iterable[ReceiptGpu],
    fault: GpuFaultReported,
    users: Mapping[str, int],
    wall_seconds: float,
) -> tuple[FaultLine, ...]:
    """The faults after another fault, which counts on where the same devices had the same before."""
    hit = [each for each in gpus if each.uuid in fault.devices]
    if not hit:
        return lines
    most = max(users.get(each.uuid, 1) for each in hit)
    now = render_time(wall_seconds)
    line = FaultLine(
        kind="xid" if fault.gpu else "sxid",
        number=fault.number,
        name=fault.name,
        devices=tuple(each.index for each in hit),
        blame=_BLAMES[find_severity(fault, most)],
        count=1,
        first=now,
        last=now,
    )
    same = next((each for each in lines if _identify(each) == _identify(line)), None)
    if same is not None:
        line = replace(line, count=same.count + 1, first=same.first)
    rest = tuple(each for each in lines if each is not same)
    return (*rest, line)[-LINES_MAX:]


def _identify(line: FaultLine) -> tuple[object, ...]:
    return line.kind, line.number, line.devices


def judge_device(
    gpu: ReceiptGpu,
    lines: Iterable[FaultLine],
    before: DeviceStanding | None,
    inventory: Inventory,
    health: HealthReport | None,
) -> DeviceStanding:
    """The device's standing; a device without a verdict (yet) stands as before.

    A fault of hardware speaks against another start until the device has become healthy after the fault.
    """
    standing = before or DeviceStanding(index=gpu.index, uuid=gpu.uuid, restart_here=True, agent=AgentAction.NOTHING)
    judged = health.find_device(gpu.uuid) if health is not None else None
    well_since = ""
    if any(gone.uuid == gpu.gpu for gone in inventory.vanished):
        standing = replace(standing, agent=AgentAction.WITHHOLDS, returns="once the GPU is on this node again")
    elif judged is not None and judged.verdict is Verdict.UNHEALTHY:
        since = render_time(judged.since_seconds)
        standing = replace(standing, agent=AgentAction.WITHHOLDS, since=since, returns=judged.returns)
    elif judged is not None and judged.verdict is not Verdict.UNKNOWN:
        standing = replace(standing, agent=AgentAction.NOTHING, since="", returns="")
        well_since = render_time(judged.since_seconds) if judged.verdict is Verdict.HEALTHY else ""
    broke = max((one.last for one in lines if gpu.index in one.devices and one.blame is Blame.HARDWARE), default="")
    is_well = standing.agent is AgentAction.NOTHING and (not broke or broke < well_since)
    return replace(standing, restart_here=is_well)


def judge(
    gpus: Iterable[ReceiptGpu],
    lines: tuple[FaultLine, ...],
    before: FaultsFile | None,
    inventory: Inventory,
    health: HealthReport | None,
) -> FaultsFile | None:
    """The file of a container's faults; `None` as long as nothing has happened."""
    known = {each.uuid: each for each in before.devices} if before is not None else {}
    devices = tuple(judge_device(each, lines, known.get(each.uuid), inventory, health) for each in gpus)
    if before is None and not lines and all(each.agent is AgentAction.NOTHING for each in devices):
        return None
    return FaultsFile(devices=devices, faults=lines)


def render_time(wall_seconds: float) -> str:
    """A time in UTC with milliseconds; such texts sort as their times do."""
    return datetime.fromtimestamp(wall_seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def render_file(content: GpusFile | FaultsFile) -> bytes:
    """The content as JSON with a line for each key, as people read the file too."""
    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"


def parse_gpus(content: bytes) -> tuple[ReceiptGpu, ...]:
    """The devices in a file of an earlier agent; none in a file that is missing, damaged, or of another version."""
    try:
        found = msgspec.json.decode(content, type=GpusFile)
    except msgspec.DecodeError:
        return ()
    return found.gpus if found.version == VERSION else ()


def parse_faults(content: bytes) -> FaultsFile | None:
    """The faults in a file of an earlier agent, by the same rule as the devices."""
    try:
        found = msgspec.json.decode(content, type=FaultsFile)
    except msgspec.DecodeError:
        return None
    return found if found.version == VERSION else None
