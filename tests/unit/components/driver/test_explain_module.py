"""First boots: what the host and the kernel log say becomes one finding with its condition and a remedy."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.components.driver.decide import decide_driver
from nodeagent.edge.nvml.agent.protocol import read_code
from nodeagent.model.conditions.driver import DRIVER_CODES
from nodeagent.model.driver import (
    DriverEvidence,
    DriverPhase,
    LibraryAnswer,
    ModuleRefusal,
    ModuleSearch,
    PciFunction,
    RefusalKind,
)
from nodeagent.model.ids import PciAddress
from tests.support.examples import examples

KERNEL = "6.8.0-50-generic"
FILE = "updates/dkms/nvidia.ko.zst"
GPU = PciFunction(address=PciAddress("0000:1b:00.0"), device_id=0x2330)


def look(search: ModuleSearch | None, *, load_problem: str = "", **changes: Any) -> tuple[DriverPhase, str, str, str]:
    """Phase, condition, detail and remedy of a node whose module is not loaded."""
    unloaded: dict[str, Any] = {"pci_functions": (GPU,), "library": read_code(9), "module_search": search}
    evidence = DriverEvidence(**(unloaded | changes))
    decision = decide_driver(evidence, load_problem=load_problem)
    ((code, detail),) = decision.conditions
    assert detail == decision.state.detail
    return decision.state.phase, code, detail, decision.state.remedy


def refused(kind: RefusalKind, line: str = "words", **changes: Any) -> ModuleSearch:
    return ModuleSearch(kernel=KERNEL, refusal=ModuleRefusal(kind=kind, line=line), **changes)


@pytest.mark.parametrize(
    ("search", "code", "detail", "remedy"),
    [
        (
            refused(RefusalKind.SIGNATURE, "Loading of unsigned module is rejected", file=FILE, secure_boot=True),
            "driver-signature-refused",
            "Secure Boot is on, the kernel log says: Loading of unsigned module is rejected",
            "mokutil --import",
        ),
        (
            refused(RefusalKind.SIGNATURE, file=FILE),
            "driver-signature-refused",
            "the kernel log says: words",
            "mokutil",
        ),
        (refused(RefusalKind.OTHER_KERNEL, file=FILE), "driver-other-kernel", "the kernel log says: words", "dkms"),
        (
            ModuleSearch(kernel=KERNEL, dkms=("nvidia/580.65.06",), headers=False),
            "driver-headers-missing",
            f"DKMS has nvidia/580.65.06, and /lib/modules/{KERNEL}/build leads nowhere",
            "linux-headers-$(uname -r)",
        ),
        (
            ModuleSearch(kernel=KERNEL, dkms=("nvidia/580.65.06",)),
            "driver-other-kernel",
            f"kernel {KERNEL} has no module nvidia, DKMS has nvidia/580.65.06",
            "dkms autoinstall",
        ),
        (
            ModuleSearch(kernel=KERNEL, other_kernels=("6.8.0-45-generic", "6.8.0-47-generic"), headers=False),
            "driver-other-kernel",
            f"kernel {KERNEL} has no module nvidia, kernel 6.8.0-47-generic has it",
            "boot a kernel",
        ),
        (
            ModuleSearch(kernel=KERNEL, file=FILE, headers=False, dkms=("nvidia/580.65.06",)),
            "driver-not-loaded",
            f"kernel {KERNEL} has {FILE} and has not loaded it",
            "modprobe -a nvidia nvidia-uvm",
        ),
        (ModuleSearch(kernel=KERNEL), "driver-not-loaded", "1 on the PCI bus, no /sys/module/nvidia", "install"),
        (ModuleSearch(secure_boot=True), "driver-not-loaded", "1 on the PCI bus", "install"),
        (refused(RefusalKind.OPEN_NEEDED), "driver-gpu-refused", "the kernel log says: words", "nvidia-open"),
        (refused(RefusalKind.OPEN_UNFIT), "driver-gpu-refused", "the kernel log says: words", "proprietary"),
        (refused(RefusalKind.UNKNOWN_GPU), "driver-gpu-refused", "the kernel log says: words", "knows the GPU"),
        (refused(RefusalKind.NO_ADDRESSES), "driver-gpu-refused", "the kernel log says: words", "Above 4G Decoding"),
    ],
)
def test_each_cause_has_its_condition_and_its_remedy(search: ModuleSearch, code: str, detail: str, remedy: str) -> None:
    phase, found, said, told = look(search)
    assert (phase, found) == (DriverPhase.NOT_LOADED, code)
    assert detail in said
    assert remedy in told


def test_the_probe_that_was_never_called_is_another_driver() -> None:
    """Sysfs may show no driver by then, the log does."""
    line = "NVRM: The NVIDIA probe routine was not called for 1 device(s)."
    assert look(refused(RefusalKind.CLAIMED, line))[:3] == (
        DriverPhase.WRONG_DRIVER,
        "driver-wrong",
        f"the kernel log says: {line}",
    )


def test_another_vendors_unsigned_module_is_not_blamed_on_nvidia() -> None:
    """The line has no name: without a module of the driver for this kernel, it is about another module."""
    search = refused(RefusalKind.SIGNATURE, dkms=("nvidia/580.65.06",), headers=False)
    assert look(search)[1] == "driver-headers-missing"


def test_a_refusal_counts_where_files_cannot_be_seen() -> None:
    """A driver container has its module in its own root."""
    search = ModuleSearch(refusal=ModuleRefusal(kind=RefusalKind.SIGNATURE, line="words"))
    assert look(search)[1] == "driver-signature-refused"


@pytest.mark.parametrize(
    "changes",
    [
        {"pci_functions": (PciFunction(address=GPU.address, device_id=1, bound_driver="nouveau"),)},
        {"nouveau_loaded": True},
    ],
)
def test_nouveau_is_named_as_what_it_is(changes: dict[str, Any]) -> None:
    """The remedy is the whole of it: blacklist, initramfs, reboot."""
    phase, code, detail, remedy = look(ModuleSearch(kernel=KERNEL, file=FILE), **changes)
    assert (phase, code, "nouveau" in detail) == (DriverPhase.WRONG_DRIVER, "driver-nouveau", True)
    assert all(word in remedy for word in ("blacklist nouveau", "update-initramfs", "dracut", "reboot"))


@pytest.mark.parametrize("library", [LibraryAnswer(), read_code(9), read_code(6)])
def test_a_loaded_module_that_refuses_the_gpu_is_told_with_its_line(library: LibraryAnswer) -> None:
    """NVML answers and lists nothing, or finds no device: either way the log has the reason."""
    search = refused(RefusalKind.OPEN_NEEDED, "NVRM: installed in this system requires use of the open modules")
    phase, code, detail, remedy = look(search, module_loaded=True, library=library)
    assert (phase, code) == (DriverPhase.FAILED, "driver-gpu-refused")
    assert "requires use of the open modules" in detail
    assert "nvidia-open" in remedy


def test_a_loaded_module_is_not_blamed_for_what_kept_it_out_before() -> None:
    """A signature that was refused is of no interest once the module is loaded."""
    assert look(refused(RefusalKind.SIGNATURE, file=FILE), module_loaded=True)[1] == "driver-failed"


def test_what_modprobe_said_is_part_of_the_reason() -> None:
    said = look(ModuleSearch(kernel=KERNEL, file=FILE), load_problem="modprobe ended with 1: No such device")[2]
    assert said.endswith("has not loaded it; loading it: modprobe ended with 1: No such device")
    working = LibraryAnswer(gpu_count=8)
    evidence = DriverEvidence(
        pci_functions=(GPU,), module_loaded=True, library=working, nodes_missing=("/dev/nvidia-uvm",)
    )
    assert decide_driver(evidence, load_problem="no").conditions == (
        ("driver-nodes-missing", "missing: /dev/nvidia-uvm; loading it: no"),
    )


searches = st.builds(
    ModuleSearch,
    kernel=st.sampled_from(["", KERNEL]),
    file=st.sampled_from(["", FILE]),
    other_kernels=st.sampled_from([(), ("6.1.0",)]),
    dkms=st.sampled_from([(), ("nvidia/580.65.06",)]),
    headers=st.booleans(),
    secure_boot=st.sampled_from([None, False, True]),
    refusal=st.none() | st.builds(ModuleRefusal, kind=st.sampled_from(RefusalKind), line=st.just("the line")),
)


@settings(max_examples=examples(100))
@given(searches, st.sampled_from(["", "No such device"]))
def test_whatever_the_host_says_there_is_one_reason_with_a_remedy(search: ModuleSearch, problem: str) -> None:
    """A module that is not loaded is one condition of the catalogue, and the log's line is never lost."""
    phase, code, detail, remedy = look(search, load_problem=problem)
    assert phase in {DriverPhase.NOT_LOADED, DriverPhase.WRONG_DRIVER}
    assert code in DRIVER_CODES
    assert detail
    assert remedy
    if search.refusal is not None and search.refusal.kind is not RefusalKind.SIGNATURE:
        assert "the line" in detail
