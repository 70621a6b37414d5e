"""Judges evidence: one verdict about the driver, and the driver's conditions.

An answer of the driver's library proves a working driver. Kernel module, PCI functions and device nodes explain a
failure, and may be absent where the library works all the same (simulated, emulated or pointed elsewhere).
"""

from collections.abc import Sequence

from nodeagent.components.driver.explain_module import (
    GPU_CODE,
    HEADERS_CODE,
    KERNEL_CODE,
    SIGNATURE_CODE,
    ModuleFinding,
    add_problem,
    explain_missing_module,
    explain_refused_gpu,
)
from nodeagent.model.conditions.driver import DRIVER_CONDITIONS
from nodeagent.model.driver import DriverEvidence, DriverPhase, DriverState, LibraryAnswer, LibraryOutcome
from nodeagent.model.nvidia import KERNEL_MODULE, LIBRARY, UNIFIED_MEMORY_NODES, VENDOR
from nodeagent.model.values import Value

_NAMED = 2
"""So many GPUs are named in a sentence."""
_NOUVEAU = "nouveau"
NOUVEAU_CODE = "driver-nouveau"

_NO_LIBRARY = {LibraryOutcome.UNLOADABLE, LibraryOutcome.NOT_FOUND}
_SAYS_NOTHING_OF_HARDWARE = _NO_LIBRARY | {LibraryOutcome.DRIVER_NOT_LOADED, LibraryOutcome.NO_GPU}

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
"""The condition of each phase where no cause has one of its own; READY has none."""

CAUSE_CODES = (NOUVEAU_CODE, SIGNATURE_CODE, HEADERS_CODE, KERNEL_CODE, GPU_CODE)
"""The conditions of causes with a remedy of their own."""

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
    code: str = ""
    """The cause's own condition; empty to use the phase's."""


def decide_driver(evidence: DriverEvidence, *, is_needed: bool = True, load_problem: str = "") -> DriverDecision:
    """Judge one probe of the driver.

    `is_needed` says whether the node should have GPUs, `load_problem` why the agent could not load a kernel module.
    """
    finding = _find_phase(evidence, load_problem)
    code = finding.code or CONDITION_CODES.get(finding.phase, "")
    if finding.phase is DriverPhase.NO_HARDWARE and not is_needed:
        code = ""
    conditions = [(code, finding.detail)] if code else []
    if finding.phase is DriverPhase.READY and evidence.module_loaded and evidence.nodes_missing:
        # The library works without the nodes that CUDA and containers need, so this is a condition beside READY.
        missing = add_problem(_describe_missing_nodes(evidence), load_problem)
        conditions.append((CONDITION_CODES[DriverPhase.NODES_MISSING], missing))
    library = evidence.library or LibraryAnswer(outcome=LibraryOutcome.UNLOADABLE)
    state = DriverState(
        phase=finding.phase,
        detail=finding.detail,
        remedy=finding.remedy or _REMEDIES.get(code, ""),
        driver_version=library.driver_version or evidence.module_version,
        interface_version=library.version,
        cuda_version=library.cuda_version,
        module_version=evidence.module_version,
        library_version=evidence.library_version,
        library_path=library.library_path,
        open_module=evidence.open_module,
        pci_gpus=tuple(function.address for function in evidence.pci_functions),
        is_needed=is_needed,
    )
    return DriverDecision(state=state, conditions=tuple(conditions))


def _find_phase(evidence: DriverEvidence, load_problem: str) -> _Finding:
    if evidence.released:
        return _Finding(phase=DriverPhase.RELEASED, detail=evidence.released)
    if evidence.stuck:
        return _Finding(phase=DriverPhase.STUCK, detail=evidence.stuck)
    if evidence.library is not None and evidence.library.outcome is LibraryOutcome.WORKS:
        return _judge_working_library(evidence, evidence.library)
    return _explain_by_library(evidence) or _explain_by_host(evidence, load_problem)


def _name_gpus(uuids: Sequence[str], count: int) -> str:
    """Few by name: the sentence is a headline, and every GPU's reason."""
    if len(uuids) <= _NAMED:
        return ", ".join(uuids)
    return f"{len(uuids)} of {count} GPUs, {', '.join(uuids[:_NAMED])} among them" if len(uuids) < count else "all GPUs"


def _judge_working_library(evidence: DriverEvidence, library: LibraryAnswer) -> _Finding:
    """The library answers; find other obstacles to a container that works."""
    if library.gpu_count == 0:
        return _judge_no_gpu(evidence, library)
    if _versions_differ(evidence):
        return _find_mismatch(evidence)
    if evidence.fabric_pending:
        waiting = _name_gpus(evidence.fabric_pending, library.gpu_count)
        return _Finding(phase=DriverPhase.FABRIC_NOT_READY, detail=f"registration is not completed on {waiting}")
    if evidence.cuda_failure:
        return _Finding(phase=DriverPhase.FAILED, detail=f"the CUDA smoke test failed: {evidence.cuda_failure}")
    return _Finding(phase=DriverPhase.READY, detail=_describe_ready(library))


def _judge_no_gpu(evidence: DriverEvidence, library: LibraryAnswer) -> _Finding:
    count = len(evidence.pci_functions)
    if count == 0:
        return _Finding(phase=DriverPhase.NO_HARDWARE, detail=f"{library.name} answers and lists no GPU")
    if refused := explain_refused_gpu(evidence.module_search):
        return _take(refused, DriverPhase.FAILED)
    return _Finding(
        phase=DriverPhase.FAILED, detail=f"{library.name} answers and lists none of the {count} GPUs on the PCI bus"
    )


def _explain_by_library(evidence: DriverEvidence) -> _Finding | None:
    """The library's own reason, where the host's state has no better explanation."""
    library = evidence.library
    if library is None:
        return None
    if library.outcome is LibraryOutcome.VERSION_MISMATCH or (
        library.outcome in _NO_LIBRARY and _versions_differ(evidence)
    ):
        return _find_mismatch(evidence)
    if library.outcome is LibraryOutcome.NO_PERMISSION and not _list_nodes_for_library(evidence):
        return _Finding(phase=DriverPhase.NO_PERMISSION, detail=_describe_answer(library))
    if evidence.pci_functions or evidence.module_loaded or library.outcome in _SAYS_NOTHING_OF_HARDWARE:
        return None
    return _find_failure(evidence)


def _explain_by_host(evidence: DriverEvidence, load_problem: str) -> _Finding:
    """Why there is no working library, from the ground up: platform, hardware, module, library, nodes."""
    if evidence.platform_unsupported:
        return _Finding(phase=DriverPhase.UNSUPPORTED, detail=evidence.platform_unsupported)
    if not evidence.pci_functions and not evidence.module_loaded:
        return _Finding(phase=DriverPhase.NO_HARDWARE, detail="no display function of vendor 10de in sysfs")
    if foreign := _find_foreign_driver(evidence):
        return foreign
    if not evidence.module_loaded:
        return _find_not_loaded(evidence, load_problem)
    return _explain_loaded_module(evidence)


def _find_foreign_driver(evidence: DriverEvidence) -> _Finding | None:
    drivers = {function.bound_driver for function in evidence.pci_functions} - {""}
    if KERNEL_MODULE in drivers:
        return None
    if drivers:
        passed_through = all("vfio" in driver for driver in drivers)
        remedy = (
            "take nodeagent off this node, its GPUs are passed through to virtual machines" if passed_through else ""
        )
        detail = f"bound to {', '.join(sorted(drivers))}"
        code = NOUVEAU_CODE if _NOUVEAU in drivers else ""
        return _Finding(phase=DriverPhase.WRONG_DRIVER, detail=detail, remedy=remedy, code=code)
    if evidence.nouveau_loaded and not evidence.module_loaded:
        return _Finding(
            phase=DriverPhase.WRONG_DRIVER,
            detail=f"the nouveau module is loaded and the {VENDOR.name} one is not",
            code=NOUVEAU_CODE,
        )
    return None


def _take(found: ModuleFinding, phase: DriverPhase) -> _Finding:
    return _Finding(phase=phase, detail=found.detail, remedy=found.remedy, code=found.code)


def _find_not_loaded(evidence: DriverEvidence, load_problem: str) -> _Finding:
    if found := explain_missing_module(evidence.module_search, load_problem):
        return _take(found, DriverPhase.WRONG_DRIVER if found.is_claimed else DriverPhase.NOT_LOADED)
    detail = f"{len(evidence.pci_functions)} on the PCI bus, no /sys/module/{KERNEL_MODULE}"
    if evidence.library is not None and evidence.library.outcome in _NO_LIBRARY:
        detail += f", and no {evidence.library.name} library: the driver may not be installed"
    return _Finding(phase=DriverPhase.NOT_LOADED, detail=detail)


def _explain_loaded_module(evidence: DriverEvidence) -> _Finding:
    if evidence.library is not None and evidence.library.outcome in _NO_LIBRARY:
        return _Finding(phase=DriverPhase.LIBRARY_MISSING, detail=_describe_answer(evidence.library))
    if _versions_differ(evidence):
        return _find_mismatch(evidence)
    if _list_nodes_for_library(evidence):
        return _Finding(phase=DriverPhase.NODES_MISSING, detail=_describe_missing_nodes(evidence))
    return _find_failure(evidence)


def _find_failure(evidence: DriverEvidence) -> _Finding:
    if evidence.library is None:
        return _Finding(phase=DriverPhase.FAILED, detail=f"the module is loaded, {LIBRARY} was not asked")
    if refused := explain_refused_gpu(evidence.module_search):
        return _take(refused, DriverPhase.FAILED)
    remedy = ""
    if evidence.library.outcome is LibraryOutcome.TIMEOUT:
        remedy = "read `dmesg | grep NVRM`; a GPU hangs, drain the node and reset or reboot it"
    return _Finding(phase=DriverPhase.FAILED, detail=_describe_answer(evidence.library), remedy=remedy)


def _find_mismatch(evidence: DriverEvidence) -> _Finding:
    library = evidence.library_version or "of unknown version"
    module = evidence.module_version or "of unknown version"
    return _Finding(phase=DriverPhase.VERSION_MISMATCH, detail=f"library {library}, kernel module {module}")


def _list_nodes_for_library(evidence: DriverEvidence) -> tuple[str, ...]:
    """The missing device nodes that explain a failing library; it works without the nodes for unified memory."""
    return tuple(node for node in evidence.nodes_missing if not node.endswith(UNIFIED_MEMORY_NODES))


def _versions_differ(evidence: DriverEvidence) -> bool:
    """Whether both versions are known and differ; an unknown version proves nothing."""
    known = evidence.library_version and evidence.module_version
    return bool(known) and evidence.library_version != evidence.module_version


def _describe_answer(library: LibraryAnswer) -> str:
    if library.outcome is LibraryOutcome.UNLOADABLE:
        return library.message or "the library could not be loaded"
    return f"{library.name} said: {library.message or 'nothing more'} (code {library.code})"


def _describe_missing_nodes(evidence: DriverEvidence) -> str:
    return f"missing: {', '.join(evidence.nodes_missing)}"


def _describe_ready(library: LibraryAnswer) -> str:
    gpus = "1 GPU" if library.gpu_count == 1 else f"{library.gpu_count} GPUs"
    versions = f", driver {library.driver_version}" if library.driver_version else ""
    if library.cuda_version is not None:
        versions += f", CUDA {library.cuda_version[0]}.{library.cuda_version[1]}"
    return gpus + versions


FIRST_PAUSE_SECONDS = 1.0

_AT_REST = {DriverPhase.READY, DriverPhase.NO_HARDWARE, DriverPhase.UNSUPPORTED}
"""Nothing is expected to change by itself; what comes by hand is noticed as a change."""


def decide_pause(phase: DriverPhase, looks_alike: int, revalidate_seconds: float) -> float:
    """Seconds until the next look: soon after a failure began, then ever less often, up to the usual pause.

    `looks_alike` looks in a row have found the phase.
    """
    if phase in _AT_REST:
        return revalidate_seconds
    # The exponent is bounded, so that a failure of many days does not overflow.
    return min(revalidate_seconds, FIRST_PAUSE_SECONDS * 2.0 ** min(max(looks_alike - 1, 0), 16))
