"""Names and lists that are computed: MIG profiles, CPU lists."""

import pytest

from nodeagent.edge.nvml.agent.unlisted import find_unlisted, name_missing
from nodeagent.edge.nvml.worker.inventory import render_cpus
from nodeagent.edge.nvml.worker.mig import render_profile_name
from nodeagent.model.driver import PciFunction
from nodeagent.model.gpu import MissingGpu
from nodeagent.model.ids import PciAddress

MIB = 1048576


@pytest.mark.parametrize(
    ("total_mib", "memory_mib", "gigabytes"),
    [
        (40960, 4864, 5),
        (40960, 9856, 10),
        (40960, 40192, 40),
        (81920, 9728, 10),
        (81920, 19968, 20),
        (81559, 9984, 10),
        (81559, 20096, 20),
        (81559, 40448, 40),
        (81559, 81152, 80),
        (143771, 16384, 18),
        (143771, 33024, 35),
        (143771, 71168, 71),
        (143771, 143104, 141),
        (183359, 20992, 23),
        (183359, 22528, 23),
        (183359, 45312, 45),
        (183359, 90624, 90),
        (24576, 5952, 6),
        (24576, 11968, 12),
        (97887, 24192, 24),
        (97887, 48512, 48),
        (97887, 97280, 96),
    ],
)
def test_the_memory_part_of_a_profile_name(total_mib: int, memory_mib: int, gigabytes: int) -> None:
    """The field's own table: eighths rounded up, halves away from zero."""
    assert render_profile_name(1, 1, memory_mib, total_mib * MIB, "") == f"1g.{gigabytes}gb"


def test_a_smaller_compute_instance_is_named_with_its_share() -> None:
    """Compute slices are told only where they are fewer than the GPU instance's; the suffix follows the memory."""
    assert render_profile_name(1, 2, 9856, 40960 * MIB, "") == "1c.2g.10gb"
    assert render_profile_name(1, 1, 4864, 40960 * MIB, "+me") == "1g.5gb+me"


@pytest.mark.parametrize(
    ("cpus", "text"),
    [([], ""), ([3], "3"), ([0, 1, 2, 3], "0-3"), ([0, 1, 5, 7, 8], "0-1,5,7-8")],
)
def test_cpus_are_told_as_spans(cpus: list[int], text: str) -> None:
    """As the kernel writes its lists."""
    assert render_cpus(cpus) == text


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
