"""The same fault in both sources is one fault."""

from nodeagent.components.health.evidence.kernel_log import RecentXids, find_gpu_at, is_duplicate, remember_xid
from nodeagent.model.events import XidReported
from nodeagent.model.ids import PciAddress
from tests.support.gpus import gpu_uuid, make_node


def xid(number: int = 48, source: str = "nvml", instance: int | None = None) -> XidReported:
    return XidReported(gpu=gpu_uuid(0), xid=number, source=source, gpu_instance_id=instance)


def test_other_source_within_two_seconds_is_an_echo() -> None:
    for first, second in (("nvml", "kernel_log"), ("kernel_log", "nvml")):
        heard = remember_xid(RecentXids(), xid(source=first), 10.0)
        assert is_duplicate(heard, xid(source=second), 12.0)
        assert not is_duplicate(heard, xid(source=second), 12.1)


def test_same_source_twice_is_two_faults() -> None:
    """A repeat is no echo."""
    assert not is_duplicate(remember_xid(RecentXids(), xid(), 10.0), xid(), 10.1)


def test_other_number_or_instance_is_another_fault() -> None:
    heard = remember_xid(RecentXids(), xid(48, "nvml", 7), 10.0)
    assert not is_duplicate(heard, xid(94, "kernel_log", 7), 10.0)
    assert not is_duplicate(heard, xid(48, "kernel_log", 8), 10.0)


def test_hearsay_does_not_grow() -> None:
    """What is too old to match is forgotten, and a burst is remembered once."""
    heard = RecentXids()
    for number in range(1000):
        heard = remember_xid(heard, xid(48, "nvml"), float(number) / 100)
        heard = remember_xid(heard, xid(number, "kernel_log"), float(number) / 100)
    assert (len(heard.driver), len(heard.log)) == (1, 401)


def test_gpu_is_found_by_its_slot() -> None:
    """Lines name slots; a slot nobody knows, or none at all, is no GPU."""
    node = make_node(2)
    assert find_gpu_at(node, node.gpus[1].pci.address) == gpu_uuid(1)
    assert find_gpu_at(node, PciAddress("0000:ff:00.0")) is None
    assert find_gpu_at(node, None) is None
