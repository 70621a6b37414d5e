"""Judges evidence: one verdict about the driver, and the driver's conditions.

An answer of NVML proves a working driver. Kernel module, PCI functions and device nodes explain a failure, and may be
absent where NVML works all the same (simulated, emulated or pointed elsewhere).
"""

from collections.abc import Sequence

from nodeagent.model.conditions.driver import DRIVER_CONDITIONS
from nodeagent.model.driver import DriverEvidence, DriverPhase, DriverState, NvmlAnswer
from nodeagent.model.values import Value

_NAMED = 2
"""So many GPUs are named in a sentence."""
_NVML_NOT_LOADED = -1
_NVML_SUCCESS = 0
_NVML_NO_PERMISSION = 4
_NVML_DRIVER_NOT_LOADED = 9
_NVML_TIMEOUT = 10
_NVML_LIBRARY_NOT_FOUND = 12
_NVML_OPERATING_SYSTEM = 17
_NVML_VERSION_MISMATCH = 18
_NVML_GPU_NOT_FOUND = 28

_BLOCKED = {_NVML_NO_PERMISSION, _NVML_OPERATING_SYSTEM}
_NO_LIBRARY = {_NVML_NOT_LOADED, _NVML_LIBRARY_NOT_FOUND}
_SAYS_NOTHING_OF_HARDWARE = _NO_LIBRARY | {_NVML_DRIVER_NOT_LOADED, _NVML_GPU_NOT_FOUND}

CONDITION_CODES: dict[DriverPhase, str] = {
    DriverPhase.NO_HARDWARE: "driver-no-hardware",
    DriverPhase.NOT_LOADED: "driver-not-loaded",
    DriverPhase.WRONG_DRIVER: "driver-wrong",
    DriverPhase.LIBRARY_MISSING: "driver-library-missing",
    DriverPhase.VERSION_MISMATCH: "driver-version-mismatch",
    DriverPhase.NO_PERMISSION: "driver-no-permission",
    DriverPhase.NODES_MISSING: "driver-nodes-missing",
    DriverPhase.FABRIC_NOT_READY: "driver-fabric-not-ready",
    DriverPhase.STUCK: "driver-stuck",
    DriverPhase.RELEASED: "driver-released",
    DriverPhase.UNSUPPORTED: "driver-unsupported",
    DriverPhase.FAILED: "driver-failed",
}
"""The condition of each phase; READY has none."""

_REMEDIES = {definition.code: definition.remedy for definition in DRIVER_CONDITIONS}


class DriverDecision(Value, frozen=True):
    """The verdict, and all driver conditions that hold."""

    state: DriverState
    conditions: tuple[tuple[str, str], ...] = ()
    """Code and detail of each."""


class _Finding(Value, frozen=True):
    phase: DriverPhase
    detail: str = ""
    remedy: str = ""
    """More to the point than the condition's own remedy; empty to use that one."""


def decide_driver(evidence: DriverEvidence, *, is_needed: bool = True) -> DriverDecision:
    """Judge one probe of the driver; `is_needed` says whether the node should have GPUs."""
    finding = _find_phase(evidence)
    code = CONDITION_CODES.get(finding.phase, "")
    if finding.phase is DriverPhase.NO_HARDWARE and not is_needed:
        code = ""
    conditions = [(code, finding.detail)] if code else []
    if finding.phase is DriverPhase.READY and evidence.module_loaded and evidence.nodes_missing:
        # NVML works without the nodes that CUDA and containers need, so this is a condition beside READY.
        conditions.append((CONDITION_CODES[DriverPhase.NODES_MISSING], _describe_missing_nodes(evidence)))
    nvml = evidence.nvml or NvmlAnswer(code=_NVML_NOT_LOADED)
    state = DriverState(
        phase=finding.phase,
        detail=finding.detail,
        remedy=finding.remedy or _REMEDIES.get(code, ""),
        driver_version=nvml.driver_version or evidence.module_version,
        nvml_version=nvml.nvml_version,
        cuda_version=nvml.cuda_version,
        module_version=evidence.module_version,
        library_path=nvml.library_path,
        open_module=evidence.open_module,
        pci_gpus=tuple(function.address for function in evidence.pci_functions),
        is_needed=is_needed,
    )
    return DriverDecision(state=state, conditions=tuple(conditions))


def _find_phase(evidence: DriverEvidence) -> _Finding:
    if evidence.released:
        return _Finding(phase=DriverPhase.RELEASED, detail=evidence.released)
    if evidence.stuck:
        return _Finding(phase=DriverPhase.STUCK, detail=evidence.stuck)
    if evidence.nvml is not None and evidence.nvml.code == _NVML_SUCCESS:
        return _judge_working_library(evidence, evidence.nvml)
    return _explain_by_library(evidence) or _explain_by_host(evidence)


def _name_gpus(uuids: Sequence[str], count: int) -> str:
    """Few by name: the sentence is a headline, and every GPU's reason."""
    if len(uuids) <= _NAMED:
        return ", ".join(uuids)
    return f"{len(uuids)} of {count} GPUs, {', '.join(uuids[:_NAMED])} among them" if len(uuids) < count else "all GPUs"


def _judge_working_library(evidence: DriverEvidence, nvml: NvmlAnswer) -> _Finding:
    """The library answers; find other obstacles to a container that works."""
    if nvml.gpu_count == 0:
        return _judge_no_gpu(evidence)
    if _versions_differ(evidence):
        return _find_mismatch(evidence)
    if evidence.fabric_pending:
        waiting = _name_gpus(evidence.fabric_pending, nvml.gpu_count)
        return _Finding(phase=DriverPhase.FABRIC_NOT_READY, detail=f"registration is not completed on {waiting}")
    if evidence.cuda_failure:
        return _Finding(phase=DriverPhase.FAILED, detail=f"the CUDA smoke test failed: {evidence.cuda_failure}")
    return _Finding(phase=DriverPhase.READY, detail=_describe_ready(nvml))


def _judge_no_gpu(evidence: DriverEvidence) -> _Finding:
    count = len(evidence.pci_functions)
    if count == 0:
        return _Finding(phase=DriverPhase.NO_HARDWARE, detail="NVML answers and lists no GPU")
    return _Finding(phase=DriverPhase.FAILED, detail=f"NVML answers and lists none of the {count} GPUs on the PCI bus")


def _explain_by_library(evidence: DriverEvidence) -> _Finding | None:
    """NVML's own reason, where the host's state has no better explanation."""
    nvml = evidence.nvml
    if nvml is None:
        return None
    if nvml.code == _NVML_VERSION_MISMATCH or (nvml.code in _NO_LIBRARY and _versions_differ(evidence)):
        return _find_mismatch(evidence)
    if nvml.code in _BLOCKED and not _list_nodes_for_nvml(evidence):
        return _Finding(phase=DriverPhase.NO_PERMISSION, detail=_describe_answer(nvml))
    if evidence.pci_functions or evidence.module_loaded or nvml.code in _SAYS_NOTHING_OF_HARDWARE:
        return None
    return _find_failure(evidence)


def _explain_by_host(evidence: DriverEvidence) -> _Finding:
    """Why there is no working library, from the ground up: platform, hardware, module, library, nodes."""
    if evidence.platform_unsupported:
        return _Finding(phase=DriverPhase.UNSUPPORTED, detail=evidence.platform_unsupported)
    if not evidence.pci_functions and not evidence.module_loaded:
        return _Finding(phase=DriverPhase.NO_HARDWARE, detail="no display function of vendor 10de in sysfs")
    if foreign := _find_foreign_driver(evidence):
        return foreign
    if not evidence.module_loaded:
        return _find_not_loaded(evidence)
    return _explain_loaded_module(evidence)


def _find_foreign_driver(evidence: DriverEvidence) -> _Finding | None:
    drivers = {function.bound_driver for function in evidence.pci_functions} - {""}
    if "nvidia" in drivers:
        return None
    if drivers:
        passed_through = all("vfio" in driver for driver in drivers)
        remedy = (
            "take nodeagent off this node, its GPUs are passed through to virtual machines" if passed_through else ""
        )
        detail = f"bound to {', '.join(sorted(drivers))}"
        return _Finding(phase=DriverPhase.WRONG_DRIVER, detail=detail, remedy=remedy)
    if evidence.nouveau_loaded and not evidence.module_loaded:
        return _Finding(phase=DriverPhase.WRONG_DRIVER, detail="the nouveau module is loaded and the NVIDIA one is not")
    return None


def _find_not_loaded(evidence: DriverEvidence) -> _Finding:
    detail = f"{len(evidence.pci_functions)} on the PCI bus, no /sys/module/nvidia"
    if evidence.nvml is not None and evidence.nvml.code in _NO_LIBRARY:
        detail += ", and no NVML library: the driver may not be installed"
    return _Finding(phase=DriverPhase.NOT_LOADED, detail=detail)


def _explain_loaded_module(evidence: DriverEvidence) -> _Finding:
    if evidence.nvml is not None and evidence.nvml.code in _NO_LIBRARY:
        return _Finding(phase=DriverPhase.LIBRARY_MISSING, detail=_describe_answer(evidence.nvml))
    if _versions_differ(evidence):
        return _find_mismatch(evidence)
    if _list_nodes_for_nvml(evidence):
        return _Finding(phase=DriverPhase.NODES_MISSING, detail=_describe_missing_nodes(evidence))
    return _find_failure(evidence)


def _find_failure(evidence: DriverEvidence) -> _Finding:
    if evidence.nvml is None:
        return _Finding(phase=DriverPhase.FAILED, detail="the module is loaded, NVML was not asked")
    remedy = ""
    if evidence.nvml.code == _NVML_TIMEOUT:
        remedy = "read `dmesg | grep NVRM`; a GPU hangs, drain the node and reset or reboot it"
    return _Finding(phase=DriverPhase.FAILED, detail=_describe_answer(evidence.nvml), remedy=remedy)


def _find_mismatch(evidence: DriverEvidence) -> _Finding:
    library = evidence.library_version or "of unknown version"
    module = evidence.module_version or "of unknown version"
    return _Finding(phase=DriverPhase.VERSION_MISMATCH, detail=f"library {library}, kernel module {module}")


def _list_nodes_for_nvml(evidence: DriverEvidence) -> tuple[str, ...]:
    """The missing device nodes that explain a failing NVML; NVML works without the nodes of nvidia-uvm."""
    return tuple(node for node in evidence.nodes_missing if "nvidia-uvm" not in node)


def _versions_differ(evidence: DriverEvidence) -> bool:
    """Whether both versions are known and differ; an unknown version proves nothing."""
    known = evidence.library_version and evidence.module_version
    return bool(known) and evidence.library_version != evidence.module_version


def _describe_answer(nvml: NvmlAnswer) -> str:
    if nvml.code == _NVML_NOT_LOADED:
        return nvml.message or "the library could not be loaded"
    return f"NVML said: {nvml.message or 'nothing more'} (code {nvml.code})"


def _describe_missing_nodes(evidence: DriverEvidence) -> str:
    return f"missing: {', '.join(evidence.nodes_missing)}"


def _describe_ready(nvml: NvmlAnswer) -> str:
    gpus = "1 GPU" if nvml.gpu_count == 1 else f"{nvml.gpu_count} GPUs"
    versions = f", driver {nvml.driver_version}" if nvml.driver_version else ""
    if nvml.cuda_version is not None:
        versions += f", CUDA {nvml.cuda_version[0]}.{nvml.cuda_version[1]}"
    return gpus + versions


FIRST_PAUSE_SECONDS = 1.0

_AT_REST = {DriverPhase.READY, DriverPhase.NO_HARDWARE, DriverPhase.UNSUPPORTED}
"""Nothing is expected to change by itself; what comes by hand is noticed as a change."""


def decide_pause(phase: DriverPhase, looks_alike: int, revalidate_seconds: float) -> float:
    """Seconds until the next look: soon after a failure began, then ever less often, up to the usual pause.

    Args:
        phase: what the last look found.
        looks_alike: how many looks in a row found just that.
        revalidate_seconds: the usual pause.
    """
    if phase in _AT_REST:
        return revalidate_seconds
    # The exponent is bounded, so that a failure of many days does not overflow.
    return min(revalidate_seconds, FIRST_PAUSE_SECONDS * 2.0 ** min(max(looks_alike - 1, 0), 16))
