"""Why the kernel module does not work at the first boot of a node: the kernel log's word first, then the host's files.

The log's word outranks the files, because it is about a module that somebody tried to load. A module that the running
kernel does not have cannot have been refused for its signature, though: the line is about another vendor's module.
"""

from nodeagent.model.driver import ModuleRefusal, ModuleSearch, RefusalKind
from nodeagent.model.nvidia import KERNEL_MODULE
from nodeagent.model.values import Value

SIGNATURE_CODE = "driver-signature-refused"
HEADERS_CODE = "driver-headers-missing"
KERNEL_CODE = "driver-other-kernel"
GPU_CODE = "driver-gpu-refused"

_GPU_REMEDIES = {
    RefusalKind.OPEN_NEEDED: "install the open kernel modules of the same release, such as `nvidia-open`",
    RefusalKind.OPEN_UNFIT: "install the proprietary kernel modules of the same release instead of the open ones",
    RefusalKind.UNKNOWN_GPU: "",
    RefusalKind.NO_ADDRESSES: "turn on `Above 4G Decoding` in the firmware, or boot the kernel with `pci=realloc`",
}
"""Empty for the condition's own remedy."""


class ModuleFinding(Value, frozen=True):
    """A cause, with the words for the person who puts it right."""

    detail: str
    code: str = ""
    """The cause's own condition; empty to use the phase's."""
    remedy: str = ""
    """Empty to use the condition's own remedy."""
    is_claimed: bool = False
    """Whether another kernel driver has the GPU."""


def add_problem(detail: str, load_problem: str) -> str:
    """The detail with what kept the agent from loading the module."""
    return f"{detail}; loading it: {load_problem}" if load_problem else detail


def explain_refused_gpu(search: ModuleSearch | None) -> ModuleFinding | None:
    """The kernel module's own word against a GPU; `None` where it said none."""
    refusal = search.refusal if search is not None else None
    if refusal is None or refusal.kind not in _GPU_REMEDIES:
        return None
    return ModuleFinding(detail=_quote(refusal), code=GPU_CODE, remedy=_GPU_REMEDIES[refusal.kind])


def explain_missing_module(search: ModuleSearch | None, load_problem: str = "") -> ModuleFinding | None:
    """Why the module is not loaded; `None` where the host gives no reason."""
    if search is None:
        return None
    return explain_refused_gpu(search) or _explain_refusal(search) or _explain_files(search, load_problem)


def _explain_refusal(search: ModuleSearch) -> ModuleFinding | None:
    refusal = search.refusal
    if refusal is None:
        return None
    if refusal.kind is RefusalKind.CLAIMED:
        return ModuleFinding(detail=_quote(refusal), is_claimed=True)
    if refusal.kind is RefusalKind.OTHER_KERNEL:
        return ModuleFinding(detail=_quote(refusal), code=KERNEL_CODE)
    if search.kernel and not search.file:
        return None
    state = "Secure Boot is on, " if search.secure_boot else ""
    return ModuleFinding(detail=state + _quote(refusal), code=SIGNATURE_CODE)


def _explain_files(search: ModuleSearch, load_problem: str) -> ModuleFinding | None:
    if search.file:
        detail = f"kernel {search.kernel} has {search.file} and has not loaded it"
        return ModuleFinding(detail=add_problem(detail, load_problem))
    if search.dkms and not search.headers:
        detail = f"DKMS has {', '.join(search.dkms)}, and /lib/modules/{search.kernel}/build leads nowhere"
        return ModuleFinding(detail=detail, code=HEADERS_CODE)
    places = [f"kernel {search.other_kernels[-1]} has it"] if search.other_kernels else []
    places += [f"DKMS has {', '.join(search.dkms)}"] if search.dkms else []
    if not places:
        return None
    detail = f"kernel {search.kernel} has no module {KERNEL_MODULE}, {' and '.join(places)}"
    return ModuleFinding(detail=detail, code=KERNEL_CODE)


def _quote(refusal: ModuleRefusal) -> str:
    return f"the kernel log says: {refusal.line}"
