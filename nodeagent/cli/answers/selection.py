"""The filters `--gpu` and `--pod`: their meaning, and the filtered answer; pure but for a warning.

Owns the match of a pod's name and the error for an unknown GPU.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from msgspec.structs import replace

from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.components.web.api.gpu_records import find_gpu_record
from nodeagent.components.web.api.records import GpuRecord, GpusRecord
from nodeagent.model.allocation import Allocation, AllocationRow
from nodeagent.model.wording import suggest
from nodeagent.rules.ids import parse_device_id

R = TypeVar("R", bound=AllocationRow)


def find_gpu(records: GpusRecord, name: str) -> GpuRecord:
    """The GPU of this index, UUID or PCI address, or of this MIG device."""
    found = find_gpu_record(records, name)
    if found is not None:
        return found
    gpus = [record.gpu for record in records.gpus]
    known = [name for gpu in gpus for name in (gpu.uuid, gpu.pci.address)]
    indices = ", ".join(str(gpu.index) for gpu in gpus) or "none"
    hint = suggest(name, known) or f"; name it by index ({indices}), UUID or PCI address, see `nodeagent gpu list`"
    raise CommandFailed(f"no GPU {name}{hint}", ExitCode.BAD_INPUT)


def list_uuids(record: GpuRecord) -> frozenset[str]:
    """The UUIDs of the GPU and of its MIG devices."""
    return frozenset({str(record.gpu.uuid), *(str(device.uuid) for device in record.gpu.mig_devices)})


def is_pod(wanted: str, name: str) -> bool:
    """Whether `namespace/name` is the wanted pod; a name alone matches in every namespace."""
    return name == wanted or name.partition("/")[2] == wanted


def name_pod(allocation: Allocation) -> str:
    """The holder in the form of `--pod`; empty while unknown."""
    return f"{allocation.pod.namespace}/{allocation.pod.name}" if allocation.pod is not None else ""


def name_fraction_pods(record: GpuRecord) -> tuple[str, ...]:
    """The pods with fractions of a GPU, each once."""
    return tuple(dict.fromkeys(f"{one.pod.namespace}/{one.pod.name}" for one in record.parts))


def name_holders(records: Iterable[GpuRecord]) -> Iterator[str]:
    """Every pod with a GPU, a MIG device or a fraction of these GPUs, in the form of `--pod`."""
    for record in records:
        yield from map(name_pod, record.allocations)
        yield from name_fraction_pods(record)


def narrow_gpus(records: GpusRecord, gpu: str | None, pod: str | None) -> GpusRecord:
    """The filtered GPUs of the node: with the pod's own allocations, fractions and MIG devices alone."""
    kept: Sequence[GpuRecord] = records.gpus
    if gpu is not None:
        kept = [find_gpu(records, gpu)]
    if pod is not None:
        kept = [narrowed for record in kept if (narrowed := _narrow_to_pod(record, pod)) is not None]
    if gpu is None and pod is None:
        return records
    left = {record.gpu.uuid for record in kept}
    pairs = tuple(pair for pair in records.pairs if pair.left in left and pair.right in left)
    return replace(records, gpus=tuple(kept), pairs=pairs, missing=(), vanished=())


def _narrow_to_pod(record: GpuRecord, pod: str) -> GpuRecord | None:
    allocations = tuple(one for one in record.allocations if is_pod(pod, name_pod(one)))
    parts = tuple(one for one in record.parts if is_pod(pod, f"{one.pod.namespace}/{one.pod.name}"))
    held = {parse_device_id(device)[0] for one in allocations for device in one.devices}
    if not allocations and not parts:
        return None
    mig = record.gpu.mig
    if mig is None or not mig.devices or record.gpu.uuid in held:
        return replace(record, allocations=allocations, parts=parts)
    devices = tuple(device for device in mig.devices if device.uuid in held)
    gpu = replace(record.gpu, mig=replace(mig, devices=devices))
    health = tuple(one for one in record.health if one.device in held or one.device == record.gpu.uuid)
    return replace(record, gpu=gpu, health=health, allocations=allocations)


def narrow_rows(rows: Iterable[R], uuids: frozenset[str] | None, pod: str | None) -> tuple[R, ...]:
    """The allocations of the devices and of the pod."""
    return tuple(
        row
        for row in rows
        if (uuids is None or any(parse_device_id(device)[0] in uuids for device in row.devices))
        and (pod is None or is_pod(pod, f"{row.namespace}/{row.pod}"))
    )


def warn_of_pod(pod: str | None, known: Iterable[str], streams: Streams) -> None:
    """Warn when the wanted pod holds nothing; the pod may have ended, so this is no failure."""
    names = sorted({name for name in known if name})
    if pod is None or any(is_pod(pod, name) for name in names):
        return
    near = names if "/" in pod else [name.partition("/")[2] for name in names]
    print(f"nodeagent: nothing here is held by pod {pod}{suggest(pod, near)}", file=streams.err)
