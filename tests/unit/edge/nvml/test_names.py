"""Names and lists that are computed: MIG profiles, CPU lists."""

import pytest

from nodeagent.edge.nvml.worker.inventory import render_cpus
from nodeagent.edge.nvml.worker.mig import render_profile_name

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
