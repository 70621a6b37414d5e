"""Processes under their parents, and traffic between two looks."""

from msgspec.structs import replace

from nodeagent.cli.top.view import ProcessFacts, RateMeter, build_top
from tests.support.samples import make_uuid
from tests.unit.cli.top.test_view import make_record, make_state
from tests.unit.components.exporter.builders import make_process, make_sample


def plant(parents: dict[int, int]) -> list[tuple[int, int]]:
    """Processes of one device in order, with their depth."""
    sample = make_sample(processes=tuple(make_process(pid) for pid in parents))
    known = {pid: ProcessFacts(parent=parent) for pid, parent in parents.items() if parent}
    (device,) = build_top(make_state(make_record(sample)), known).devices
    return [(one.pid, one.depth) for one in device.processes]


def test_processes_stand_under_their_parents() -> None:
    """Those whose parent is elsewhere, or not known, at the left."""
    assert plant({4: 3, 2: 1, 3: 2, 9: 0, 5: 2}) == [(2, 0), (3, 1), (4, 2), (5, 1), (9, 0)]


def test_nobody_is_lost_among_parents_that_cannot_be() -> None:
    """Numbers are used again while they are read: each process is shown once."""
    assert plant({1: 2, 2: 1}) == [(1, 0), (2, 1)]
    assert plant({1: 1}) == [(1, 0)]


def test_rates_need_two_samples() -> None:
    """Nothing after the first look; after the second what the total grew by; the same sample again changes nothing."""
    meter, uuid = RateMeter(), make_uuid(0)
    first = make_state(make_record(make_sample(pcie_transmit_bytes=1000, pcie_receive_bytes=0), age=0.0))
    assert meter.update(first) == {}
    later = replace(
        make_state(make_record(make_sample(pcie_transmit_bytes=3000, pcie_receive_bytes=100), age=1.0)),
        time_seconds=first.time_seconds + 3.0,
    )
    assert meter.update(later)[uuid].pcie_transmit_bytes == 1000.0
    again = replace(later, time_seconds=later.time_seconds)
    assert meter.update(again)[uuid].pcie_transmit_bytes == 1000.0
    readings = build_top(later, {}, meter.update(again)).devices[0].readings
    assert any(one.group == "PCIe" and one.value == "1000 B/s out, 50 B/s in" for one in readings)
    assert RateMeter().update(make_state()) == {}
