"""The GPUs and MIG devices for the offer, and their shapes.

Owns the MIG strategies.

Refuses to give up for one device: the others are offered, and the reason is a problem.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from nodeagent.model.gpu import Gpu
from nodeagent.rules.offer.devices import Candidate, ResourceProblem

MigStrategy = Literal["none", "single", "mixed"]


def plan_candidates(
    gpus: Iterable[Gpu], strategy: MigStrategy, problems: list[ResourceProblem]
) -> tuple[Candidate, ...]:
    """Each device to offer, in index order; any other is added to the problems."""
    distinct = tuple(_drop_doubles(sorted(gpus, key=lambda gpu: (gpu.index, gpu.uuid)), problems))
    if strategy == "single":
        return _plan_single(distinct, problems)
    if strategy == "mixed":
        return tuple(_plan_mixed(distinct, problems))
    return tuple(Candidate(gpu=gpu) for gpu in distinct)


def _drop_doubles(gpus: Iterable[Gpu], problems: list[ResourceProblem]) -> Iterator[Gpu]:
    """Drop GPUs with equal UUIDs: devices are told apart by UUID alone, so neither can be handed out for sure."""
    own = [(gpu, gpu.device_uuids) for gpu in gpus]
    counts = Counter(uuid for _, uuids in own for uuid in uuids)
    for gpu, uuids in own:
        doubled = [uuid for uuid in uuids if counts[uuid] > 1]
        if not doubled and gpu.uuid:
            yield gpu
            continue
        fault = f"UUID {doubled[0]!r} is not unique on this node" if gpu.uuid else "the driver names no UUID"
        reason = f"{fault}: no container can be given it"
        problems.append(ResourceProblem(subject=f"GPU {gpu.index}", reason=reason))


def _note_empty(gpu: Gpu, problems: list[ResourceProblem]) -> None:
    problems.append(
        ResourceProblem(
            subject=f"GPU {gpu.index}",
            reason=f"MIG is on but {gpu.uuid} has no MIG device: create some, or switch MIG off",
        )
    )


def _plan_single(gpus: Sequence[Gpu], problems: list[ResourceProblem]) -> tuple[Candidate, ...]:
    """All devices of one kind; with several kinds all are withheld, for a pod could get any of them."""
    candidates: list[Candidate] = []
    for gpu in gpus:
        if not gpu.mig_enabled:
            candidates.append(Candidate(gpu=gpu))
        elif gpu.mig_devices:
            candidates.extend(Candidate(gpu=gpu, mig=mig) for mig in gpu.mig_devices)
        else:
            _note_empty(gpu, problems)
    kinds = {None if candidate.mig is None else candidate.mig.attributes for candidate in candidates}
    if len(kinds) <= 1:
        return tuple(candidates)
    shapes = sorted({"whole GPUs" if each.mig is None else each.mig.profile for each in candidates})
    reason = (
        f"mig_strategy single needs devices of one kind, there are {' and '.join(shapes)}:"
        " make the layout the same on all GPUs, or use mixed"
    )
    problems.append(ResourceProblem(subject="device_plugin.mig_strategy", reason=reason))
    return tuple(Candidate(gpu=each.gpu, mig=each.mig, withheld=reason) for each in candidates)


def _plan_mixed(gpus: Sequence[Gpu], problems: list[ResourceProblem]) -> Iterator[Candidate]:
    """Each profile on its own; a compute instance smaller than the GPU instance has no name for pods to ask for."""
    for gpu in gpus:
        if not gpu.mig_enabled:
            yield Candidate(gpu=gpu)
            continue
        if not gpu.mig_devices:
            _note_empty(gpu, problems)
        for mig in gpu.mig_devices:
            if mig.attributes.compute_instance_slice_count == mig.attributes.gpu_instance_slice_count:
                yield Candidate(gpu=gpu, mig=mig)
            else:
                reason = (
                    f"compute instance {mig.profile} is smaller than its GPU instance and has no resource name"
                    " under mig_strategy mixed: make it as large, or use single"
                )
                problems.append(ResourceProblem(subject=mig.uuid, reason=reason))
