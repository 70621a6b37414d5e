"""What is remembered between samples: XIDs, clock events, and the minute that health watches compare."""

from collections.abc import Mapping

import pytest

from nodeagent.components.exporter.series.clock_events import SLICES, ClockEvents
from nodeagent.components.exporter.series.health_watches import HealthWatches, Incident
from nodeagent.components.exporter.series.xid_history import RECENT_MAX, XidHistory
from nodeagent.components.exporter.series.xid_messages import UNKNOWN, describe_xid
from nodeagent.model.events import XidReported
from nodeagent.model.telemetry import GpuSample
from tests.support.samples import make_uuid

UUID = make_uuid(0)


def test_xids_leave_the_window_and_stay_in_the_total() -> None:
    """The window falls, the counter never does."""
    book = XidHistory()
    for time_seconds, xid in ((0, 31), (100, 31), (200, 79)):
        book.note(XidReported(gpu=UUID, xid=xid), time_seconds)
    assert book.count_since(UUID, 50) == {31: 1, 79: 1}
    assert book.totals(UUID) == [(31, 2, 100), (79, 1, 200)]
    assert book.list_recent(UUID, 150) == {79}


def test_a_storm_of_xids_is_bounded_in_memory_and_counted_whole() -> None:
    """The window is cut, the total is not."""
    book = XidHistory()
    for number in range(RECENT_MAX + 10):
        book.note(XidReported(gpu=UUID, xid=92), number)
    assert sum(book.count_since(UUID, 0).values()) == RECENT_MAX
    assert book.totals(UUID)[0][1] == RECENT_MAX + 10


def test_nothing_is_known_of_a_gpu_without_xids() -> None:
    """No count, no last one, no total."""
    book = XidHistory()
    assert (book.find_last(UUID), book.totals(UUID), book.count_since(UUID, 0)) == (None, [], {})


@pytest.mark.parametrize(("xid", "words"), [(79, "fallen off the bus"), (147, "NVLink hardware"), (9999, UNKNOWN)])
def test_every_xid_has_words(xid: int, words: str) -> None:
    """A listed one its own, an unlisted one the place to look."""
    assert words in describe_xid(xid)


def test_clock_events_age_out_of_the_window() -> None:
    """Samples count for the window and not longer."""
    events = ClockEvents()
    for second in range(400):
        events.note(UUID, second, 0x4 if second < 200 else 0x1)
    counts = events.count(UUID, 399)
    assert counts["gpu_idle"] == 200
    assert counts["power_cap"] == 100
    assert events.count(UUID, 10_000)["gpu_idle"] == 0


def test_memory_of_a_long_window_is_that_of_a_short_one() -> None:
    """A day's window costs as many slices as five minutes."""
    events = ClockEvents()
    events.set_window(86_400)
    for second in range(0, 200_000, 60):
        events.note(UUID, second, 0x8)
    assert len(events._windows[UUID].slices) <= SLICES
    assert events.count(UUID, 199_980)["hw_slowdown"] == pytest.approx(86_400 / 60, rel=0.02)


def test_another_window_starts_empty_and_the_same_one_does_not() -> None:
    """Counts of another width would be wrong; a reload that changes nothing loses nothing."""
    events = ClockEvents()
    events.note(UUID, 0, 0x1)
    events.set_window(300.0)
    assert events.count(UUID, 0)["gpu_idle"] == 1
    events.set_window(60.0)
    assert events.count(UUID, 0) == {}


def test_gone_gpus_are_forgotten() -> None:
    """What a node remembers does not grow with the GPUs it once had."""
    events, watches = ClockEvents(), HealthWatches()
    events.note(UUID, 0, 0)
    watches.judge(GpuSample(uuid=UUID), 0, frozenset())
    events.forget(frozenset())
    watches.forget(frozenset())
    assert events._windows == {}
    assert watches._past == {}


CALM = GpuSample(
    uuid=UUID,
    power_milliwatts=1,
    pcie_generation=4,
    pcie_width=16,
    pcie_replay_count=0,
    thermal_violation_nanoseconds=0,
    power_violation_nanoseconds=0,
    nvlinks_active=18,
    nvlink_replay_count=0,
    nvlink_recovery_count=0,
    nvlink_crc_flit_count=0,
    nvlink_crc_data_count=0,
)


def judge(*changes: Mapping[str, object], xids: frozenset[int] = frozenset(), step: float = 30.0) -> set[Incident]:
    """What the watches find, beside that all is well, after samples with these changes."""
    watches = HealthWatches()
    found: tuple[Incident, ...] = ()
    unchanged: Mapping[str, object] = {}
    for number, change in enumerate((unchanged, *changes)):
        values = {name: getattr(CALM, name) for name in CALM.__struct_fields__} | dict(change)
        found = watches.judge(GpuSample(**values), number * step, xids)
    assert len(found) == 11
    return {incident for incident in found if incident.result}


def test_a_calm_gpu_passes_every_watch() -> None:
    """Eleven watches, no finding."""
    assert judge({}) == set()


@pytest.mark.parametrize(
    ("change", "watch", "result", "code"),
    [
        ({"pcie_replay_count": 17}, "PCIE", 10, "DCGM_FR_PCI_REPLAY_RATE"),
        ({"ecc_uncorrected_volatile": 1}, "MEM", 20, "DCGM_FR_VOLATILE_DBE_DETECTED"),
        ({"remapped_rows_failed": True}, "MEM", 20, "DCGM_FR_ROW_REMAP_FAILURE"),
        ({"retired_pages_single_bit": 60, "retired_pages_double_bit": 3}, "MEM", 20, "DCGM_FR_RETIRED_PAGES_LIMIT"),
        ({"remapped_rows_uncorrectable": 512}, "MEM", 10, "DCGM_FR_UNKNOWN(132)"),
        ({"retired_pages_pending": True}, "MEM", 10, "DCGM_FR_PENDING_PAGE_RETIREMENTS"),
        ({"thermal_violation_nanoseconds": 5}, "THERMAL", 10, "DCGM_FR_CLOCK_THROTTLE_THERMAL"),
        ({"power_violation_nanoseconds": 5}, "POWER", 10, "DCGM_FR_CLOCK_THROTTLE_POWER"),
        ({"power_milliwatts": None}, "POWER", 10, "DCGM_FR_POWER_UNREADABLE"),
        ({"nvlinks_active": 17}, "NVLINK", 20, "DCGM_FR_NVLINK_DOWN"),
        ({"nvlink_replay_count": 1}, "NVLINK", 20, "DCGM_FR_NVLINK_ERROR_CRITICAL"),
        ({"nvlink_recovery_count": 1}, "NVLINK", 20, "DCGM_FR_NVLINK_ERROR_CRITICAL"),
        ({"nvlink_crc_flit_count": 6000}, "NVLINK", 20, "DCGM_FR_NVLINK_CRC_ERROR_THRESHOLD"),
        ({"nvlink_crc_data_count": 1}, "NVLINK", 10, "DCGM_FR_NVLINK_ERROR_THRESHOLD"),
        ({"recovery_action": 2}, "DRIVER", 20, "DCGM_FR_GPU_RECOVERY_REBOOT"),
        ({"lost": "gone"}, "ALL", 20, "DCGM_FR_FALLEN_OFF_BUS"),
    ],
)
def test_each_reading_trips_its_watch(change: dict[str, object], watch: str, result: int, code: str) -> None:
    assert judge(change) == {Incident(watch, result, code)}


@pytest.mark.parametrize(
    ("xid", "watch", "result"), [(79, "ALL", 20), (94, "ALL", 10), (63, "MEM", 10), (64, "MEM", 20), (38, "PCIE", 10)]
)
def test_each_xid_trips_its_watch(xid: int, watch: str, result: int) -> None:
    (incident,) = judge({}, xids=frozenset({xid}))
    assert (incident.watch, incident.result) == (watch, result)


def test_the_worst_finding_of_a_watch_is_shown() -> None:
    """One series a watch, and a failure is not hidden by a warning."""
    assert judge({"remapped_rows_failed": True, "retired_pages_pending": True}, xids=frozenset({31})) == {
        Incident("MEM", 20, "DCGM_FR_ROW_REMAP_FAILURE")
    }


def test_a_rise_is_forgotten_after_a_minute() -> None:
    """What once slowed the GPU down is no finding for ever."""
    hot = {"thermal_violation_nanoseconds": 5}
    assert judge(hot, hot)
    assert judge(hot, hot, hot, hot) == set()
