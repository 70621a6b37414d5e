"""Which kernel modules are loaded, and above all which are not."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from nodeagent.components.driver.plan_modules import LoadPlan, list_loaded_modules, plan_modules
from nodeagent.model.driver import DriverEvidence, ModuleSearch, PciFunction
from nodeagent.model.ids import PciAddress
from tests.support.examples import examples

GPU = PciFunction(address=PciAddress("0000:1b:00.0"), device_id=0x2330)
FOUND = ModuleSearch(kernel="6.8.0", file="updates/dkms/nvidia.ko", table_time=7)
WAITING = DriverEvidence(pci_functions=(GPU,), module_search=FOUND)
HALF = DriverEvidence(pci_functions=(GPU,), module_loaded=True)


def bound(driver: str) -> tuple[PciFunction, ...]:
    return (PciFunction(address=GPU.address, device_id=1, bound_driver=driver),)


def test_both_modules_are_loaded_where_the_kernel_has_them() -> None:
    """What is tried belongs to the kernel's table: another table is another try."""
    plan = plan_modules(WAITING, ())
    assert plan == LoadPlan(modules=("nvidia", "nvidia-uvm"), tables=("6.8.0", 7))
    rebuilt = structs.replace(WAITING, module_search=structs.replace(FOUND, table_time=8))
    assert plan_modules(rebuilt, ()) != plan


def test_unified_memory_alone_is_loaded_where_it_alone_is_missing() -> None:
    """NVML works without it, so nobody else notices."""
    assert plan_modules(HALF, ("nvidia",)) == LoadPlan(modules=("nvidia-uvm",))


@pytest.mark.parametrize(
    ("evidence", "changes", "seen"),
    [
        (WAITING, {"released": "driver upgrade"}, ()),
        (WAITING, {"stuck": "nvmlInit"}, ()),
        (WAITING, {"platform_unsupported": "WSL"}, ()),
        (WAITING, {"pci_functions": ()}, ()),
        (WAITING, {"pci_functions": bound("nouveau")}, ()),
        (WAITING, {"pci_functions": bound("vfio-pci")}, ()),
        (WAITING, {"nouveau_loaded": True}, ()),
        (WAITING, {"module_search": None}, ()),
        (WAITING, {"module_search": ModuleSearch(kernel="6.8.0")}, ()),
        (WAITING, {}, ("nvidia",)),
        (HALF, {"released": "driver upgrade"}, ()),
        (HALF, {"unified_memory_loaded": True}, ()),
        (HALF, {}, ("nvidia", "nvidia-uvm")),
    ],
)
def test_nothing_is_loaded(evidence: DriverEvidence, changes: dict[str, Any], seen: tuple[str, ...]) -> None:
    """Where somebody works on the driver, another driver has the GPU, or the module was there and was taken away."""
    assert plan_modules(structs.replace(evidence, **changes), seen) is None


looks = st.builds(
    DriverEvidence,
    pci_functions=st.sampled_from([(), (GPU,), bound("nvidia"), bound("nouveau"), bound("vfio-pci")]),
    module_loaded=st.booleans(),
    unified_memory_loaded=st.booleans(),
    nouveau_loaded=st.booleans(),
    released=st.sampled_from(["", "by hand"]),
    module_search=st.sampled_from([None, FOUND, ModuleSearch(kernel="6.8.0")]),
)


@settings(max_examples=examples(100))
@given(st.lists(looks, max_size=8))
def test_what_was_seen_loaded_is_never_loaded(life: list[DriverEvidence]) -> None:
    """Over a whole life: neither a module that is loaded nor one that was is asked for, and none while released."""
    seen: frozenset[str] = frozenset()
    for evidence in life:
        seen |= list_loaded_modules(evidence)
        plan = plan_modules(evidence, seen)
        assert plan is None or not (evidence.released or (evidence.nouveau_loaded and not evidence.module_loaded))
        # The first of a plan is the one it is about; modprobe passes over others that are loaded.
        assert plan is None or plan.modules[0] not in seen
