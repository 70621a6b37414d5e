"""GPUs that the bus shows and the driver does not list."""

from nodeagent.edge.nvml.agent.unlisted import find_unlisted, name_missing
from nodeagent.model.driver import PciFunction
from nodeagent.model.gpu import MissingGpu
from nodeagent.model.ids import PciAddress

FIRST, SECOND, THIRD = (
    PciFunction(address=PciAddress(f"0000:{bus}:00.0"), device_id=0x2330, bound_driver=driver)
    for bus, driver in (("1b", "nvidia"), ("43", ""), ("52", "vfio-pci"))
)


def test_a_gpu_of_another_driver_is_not_missing() -> None:
    """It was passed through to a virtual machine; one that nobody has taken is missing as well."""
    assert find_unlisted([FIRST, SECOND, THIRD], set()) == (FIRST, SECOND)
    assert find_unlisted([FIRST, SECOND, THIRD], {FIRST.address}) == (SECOND,)


def test_what_is_missing_is_named_by_its_address() -> None:
    """With the driver's own reason where it has one, else with what the bus tells."""
    unnamed = MissingGpu(address=PciAddress(""), device_id=0, reason="GPU at index 3: it is lost")
    assert name_missing([unnamed], []) == (unnamed,)
    (one,) = name_missing([unnamed], [FIRST])
    assert (one.address, one.reason) == (FIRST.address, unnamed.reason)
    reasons = [missing.reason for missing in name_missing([], [FIRST, SECOND])]
    assert reasons == ["the driver does not list it", "no kernel driver has taken it"]
    assert len(name_missing([unnamed, unnamed], [FIRST])) == 2
