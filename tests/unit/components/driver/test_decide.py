"""The decision table of driver readiness."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.components.driver.decide import (
    CAUSE_CODES,
    CONDITION_CODES,
    DriverDecision,
    decide_driver,
    decide_pause,
)
from nodeagent.edge.nvml.agent.protocol import read_code
from nodeagent.model.conditions.driver import DRIVER_CODES
from nodeagent.model.driver import DriverEvidence, DriverPhase, LibraryAnswer, PciFunction
from nodeagent.model.ids import PciAddress

GPU = PciFunction(address=PciAddress("0000:1b:00.0"), device_id=0x2330, bound_driver="nvidia")
WORKING = LibraryAnswer(
    driver_version="580.173.02", version="13.580", cuda_version=(13, 0), gpu_count=8, library_path="/lib/x"
)


def look(library: LibraryAnswer | int | None = WORKING, **changes: Any) -> DriverDecision:
    """Judge a healthy node with some changes."""
    answer = read_code(library, "words") if isinstance(library, int) else library
    healthy: dict[str, Any] = {"pci_functions": (GPU,), "module_loaded": True, "module_version": "580.173.02"}
    return decide_driver(DriverEvidence(library=answer, **(healthy | changes)))


BARE: dict[str, Any] = {"pci_functions": (), "module_loaded": False, "module_version": ""}
UNBOUND: dict[str, Any] = {
    "pci_functions": (PciFunction(address=GPU.address, device_id=0x2330),),
    "module_loaded": False,
    "module_version": "",
}


def bound_to(*drivers: str) -> tuple[PciFunction, ...]:
    return tuple(PciFunction(address=GPU.address, device_id=0x2330, bound_driver=driver) for driver in drivers)


@pytest.mark.parametrize(
    ("library", "changes", "phase", "detail"),
    [
        (WORKING, {}, DriverPhase.READY, "8 GPUs, driver 580.173.02, CUDA 13.0"),
        (LibraryAnswer(gpu_count=1), {}, DriverPhase.READY, "1 GPU"),
        (WORKING, BARE, DriverPhase.READY, "8 GPUs, driver 580.173.02, CUDA 13.0"),
        (WORKING, BARE | {"platform_unsupported": "WSL"}, DriverPhase.READY, "8 GPUs"),
        (WORKING, BARE | {"library_version": "999.1"}, DriverPhase.READY, "8 GPUs"),
        (WORKING, {"pci_functions": bound_to("vfio-pci")}, DriverPhase.READY, "8 GPUs"),
        (WORKING, {"released": "by hand"}, DriverPhase.RELEASED, "by hand"),
        (None, {"released": "by hand", "stuck": "init"}, DriverPhase.RELEASED, "by hand"),
        (None, {"stuck": "nvmlInit for 5 s"}, DriverPhase.STUCK, "nvmlInit for 5 s"),
        (WORKING, {"stuck": "reading /sys"}, DriverPhase.STUCK, "reading /sys"),
        (LibraryAnswer(), {}, DriverPhase.FAILED, "lists none of the 1 GPUs"),
        (LibraryAnswer(), BARE, DriverPhase.NO_HARDWARE, "lists no GPU"),
        (WORKING, {"library_version": "590.1"}, DriverPhase.VERSION_MISMATCH, "library 590.1, kernel module 580.173"),
        (WORKING, {"fabric_pending": ("GPU-a", "GPU-b")}, DriverPhase.FABRIC_NOT_READY, "GPU-a, GPU-b"),
        (WORKING, {"fabric_pending": tuple("abcdefgh")}, DriverPhase.FABRIC_NOT_READY, "completed on all GPUs"),
        (WORKING, {"fabric_pending": tuple("abc")}, DriverPhase.FABRIC_NOT_READY, "3 of 8 GPUs, a, b among them"),
        (WORKING, {"cuda_failure": "error 802"}, DriverPhase.FAILED, "CUDA smoke test failed: error 802"),
        # NVML's own reason.
        (18, {}, DriverPhase.VERSION_MISMATCH, "library of unknown version, kernel module 580.173.02"),
        (18, BARE, DriverPhase.VERSION_MISMATCH, "kernel module of unknown version"),
        (4, {}, DriverPhase.NO_PERMISSION, "words (code 4)"),
        (17, {}, DriverPhase.NO_PERMISSION, "code 17"),
        (4, {"nodes_missing": ("/dev/nvidiactl",)}, DriverPhase.NODES_MISSING, "missing: /dev/nvidiactl"),
        (999, BARE, DriverPhase.FAILED, "code 999"),
        # The host's state.
        (9, {"platform_unsupported": "this is WSL"}, DriverPhase.UNSUPPORTED, "this is WSL"),
        (9, BARE, DriverPhase.NO_HARDWARE, "no display function"),
        (-1, BARE, DriverPhase.NO_HARDWARE, "no display function"),
        (28, BARE, DriverPhase.NO_HARDWARE, "no display function"),
        (None, BARE, DriverPhase.NO_HARDWARE, "no display function"),
        (9, UNBOUND, DriverPhase.NOT_LOADED, "1 on the PCI bus, no /sys/module/nvidia"),
        (None, UNBOUND, DriverPhase.NOT_LOADED, "no /sys/module/nvidia"),
        (-1, UNBOUND, DriverPhase.NOT_LOADED, "may not be installed"),
        (9, UNBOUND | {"nouveau_loaded": True}, DriverPhase.WRONG_DRIVER, "nouveau module is loaded"),
        (9, UNBOUND | {"pci_functions": bound_to("nouveau")}, DriverPhase.WRONG_DRIVER, "bound to nouveau"),
        (9, UNBOUND | {"pci_functions": bound_to("vfio-pci", "")}, DriverPhase.WRONG_DRIVER, "bound to vfio-pci"),
        (9, {"pci_functions": bound_to("vfio-pci")}, DriverPhase.WRONG_DRIVER, "bound to vfio-pci"),
        (9, {"pci_functions": bound_to("vfio-pci", "nvidia")}, DriverPhase.FAILED, "code 9"),
        (9, {"nouveau_loaded": True, "pci_functions": bound_to("")}, DriverPhase.FAILED, "code 9"),
        (-1, {}, DriverPhase.LIBRARY_MISSING, "words"),
        (read_code(-1), {}, DriverPhase.LIBRARY_MISSING, "could not be loaded"),
        (12, {}, DriverPhase.LIBRARY_MISSING, "code 12"),
        (-1, {"library_version": "590.1"}, DriverPhase.VERSION_MISMATCH, "590.1"),
        (9, {"library_version": "590.1"}, DriverPhase.VERSION_MISMATCH, "590.1"),
        (9, {"nodes_missing": ("/dev/nvidiactl", "/dev/nvidia0")}, DriverPhase.NODES_MISSING, "nvidiactl, /dev/nv"),
        (9, {"nodes_missing": ("/dev/nvidia-uvm",)}, DriverPhase.FAILED, "code 9"),
        (4, {"nodes_missing": ("/dev/nvidia-uvm",)}, DriverPhase.NO_PERMISSION, "code 4"),
        (None, {}, DriverPhase.FAILED, "NVML was not asked"),
        (read_code(999), {}, DriverPhase.FAILED, "NVML said: nothing more (code 999)"),
        (10, {}, DriverPhase.FAILED, "code 10"),
        (28, {}, DriverPhase.FAILED, "code 28"),
        (28, {"pci_functions": ()}, DriverPhase.FAILED, "code 28"),
    ],
)
def test_phase_follows_from_the_evidence(
    library: LibraryAnswer | int | None, changes: dict[str, Any], phase: DriverPhase, detail: str
) -> None:
    """NVML's answer proves readiness; the host's state explains why not, the deepest cause first."""
    decision = look(library, **changes)
    assert decision.state.phase is phase
    assert detail in decision.state.detail


@pytest.mark.parametrize("code", [1, 2, 3, 5, 6, 7, 8, 10, 11, 13, 14, 15, 16, 19, 20, 21, 25, 27, 28, 29, 999])
def test_every_other_code_is_a_failure_that_names_it(code: int) -> None:
    """A code with no better explanation is reported as NVML gave it, never as ready."""
    state = look(code).state
    assert (state.phase, f"(code {code})" in state.detail) == (DriverPhase.FAILED, True)


def test_every_phase_but_ready_and_every_cause_has_its_condition() -> None:
    """The conditions of the driver are exactly those of the catalogue, one for each phase and for each cause."""
    assert set(CONDITION_CODES) == set(DriverPhase) - {DriverPhase.READY}
    assert sorted([*CONDITION_CODES.values(), *CAUSE_CODES]) == sorted(DRIVER_CODES)


def test_ready_node_has_no_condition() -> None:
    """Nothing is reported of a driver that works."""
    assert look().conditions == ()


def test_failure_sets_its_condition_with_the_detail() -> None:
    decision = look(9, nodes_missing=("/dev/nvidiactl",))
    assert decision.conditions == (("driver-nodes-missing", "missing: /dev/nvidiactl"),)
    assert "nvidia-modprobe" in decision.state.remedy


def test_missing_nodes_beside_a_working_library_are_a_condition() -> None:
    """NVML works without nvidia-uvm, CUDA does not: ready, and a condition."""
    decision = look(nodes_missing=("/dev/nvidia-uvm",))
    assert decision.state.ready
    assert decision.conditions == (("driver-nodes-missing", "missing: /dev/nvidia-uvm"),)


def test_missing_nodes_without_a_module_are_no_condition() -> None:
    """An NVML without a kernel module needs no device nodes."""
    assert look(WORKING, **(BARE | {"nodes_missing": ("/dev/nvidiactl",)})).conditions == ()


def test_pass_through_has_its_own_remedy() -> None:
    """GPUs given to virtual machines are not to be unbound."""
    assert "virtual machines" in look(9, pci_functions=bound_to("vfio-pci", "nvgrace_gpu_vfio_pci")).state.remedy
    assert "nouveau" in look(9, pci_functions=bound_to("nouveau", "vfio-pci")).state.remedy


def test_state_carries_the_versions() -> None:
    state = look().state
    assert (state.driver_version, state.interface_version, state.cuda_version) == ("580.173.02", "13.580", (13, 0))
    assert (state.module_version, state.library_path, state.open_module) == ("580.173.02", "/lib/x", None)
    assert look(None, stuck="x", open_module=True).state.driver_version == "580.173.02"
    assert look(None, stuck="x", open_module=True).state.open_module is True


def test_hung_gpu_has_its_own_remedy() -> None:
    """A time-out points at the hung card."""
    assert "hangs" in look(10).state.remedy


def test_a_node_that_need_not_have_gpus_does_without_them() -> None:
    """Nothing is wrong then; a GPU that is there and does not work is wrong all the same."""
    bare = decide_driver(DriverEvidence(library=read_code(9)), is_needed=False)
    assert bare.conditions == ()
    assert bare.state.is_done_without
    assert not decide_driver(DriverEvidence(library=read_code(9))).state.is_done_without
    broken = decide_driver(DriverEvidence(pci_functions=(GPU,), library=read_code(9)), is_needed=False)
    assert [code for code, _ in broken.conditions] == ["driver-not-loaded"]
    assert not broken.state.is_done_without


@pytest.mark.parametrize(
    ("phase", "looks", "pause"),
    [
        (DriverPhase.READY, 1, 30.0),
        (DriverPhase.NO_HARDWARE, 1, 30.0),
        (DriverPhase.UNSUPPORTED, 1, 30.0),
        (DriverPhase.NOT_LOADED, 1, 1.0),
        (DriverPhase.NOT_LOADED, 0, 1.0),
        (DriverPhase.FABRIC_NOT_READY, 2, 2.0),
        (DriverPhase.STUCK, 5, 16.0),
        (DriverPhase.FAILED, 6, 30.0),
        (DriverPhase.FAILED, 100_000, 30.0),
    ],
)
def test_pause_grows_while_a_failure_lasts(phase: DriverPhase, looks: int, pause: float) -> None:
    """A driver at rest is looked at regularly, a failing one soon and then ever less often."""
    assert decide_pause(phase, looks, 30.0) == pause


@given(st.sampled_from(DriverPhase), st.integers(0, 10**9), st.floats(1, 3600))
def test_pause_is_never_longer_than_configured_nor_none(phase: DriverPhase, looks: int, usual: float) -> None:
    """Whatever has happened, the next look comes within the configured pause, and not at once."""
    assert 1.0 <= decide_pause(phase, looks, usual) <= usual
