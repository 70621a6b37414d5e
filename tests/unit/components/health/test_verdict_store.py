"""What a restart and a boot do to what was remembered."""

import pytest
from msgspec import DecodeError
from msgspec.structs import replace

from nodeagent.components.health.records import CounterWindow, GpuRecord, StoredVerdicts
from nodeagent.components.health.verdict_store import (
    decode_verdicts,
    encode_verdicts,
    resume_verdicts,
)
from nodeagent.model.health import Verdict
from tests.support.health import Gpu0

BOOT, NEXT_BOOT = "boot-1", "boot-2"


def make_book(gpu: Gpu0, **fields: object) -> StoredVerdicts:
    return StoredVerdicts(boot_id=BOOT, saved_at=gpu.at, records=(gpu.record,), **fields)  # type: ignore[arg-type]  # few fields


def resumed(book: StoredVerdicts, boot_id: str, at: float) -> GpuRecord:
    return resume_verdicts(book, boot_id, at).records[0]


def test_book_comes_back_as_it_was_written() -> None:
    """Every fault, counter and clearing."""
    gpu = Gpu0()
    gpu.look(ecc_uncorrected_volatile=0, pcie_replay_count=3, nvlink_replay_count=1)
    gpu.xid(48, holder="a/b", pids=(1, 2))
    gpu.xid(31)
    book = make_book(gpu, kernel_log_sequence=17)
    assert decode_verdicts(encode_verdicts(book)) == book


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"boot_id": 3}', b'{"records": []}', b"\xff"])
def test_bytes_that_are_no_book_are_refused(content: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_verdicts(content)


def test_fault_outlives_the_agent() -> None:
    """Stored faults stay faults, and what was proven before counts no more."""
    gpu = Gpu0()
    gpu.xid(119)
    gpu.look(1)
    record = resumed(make_book(gpu), BOOT, gpu.at + 1)
    assert [(fault.key, fault.verdict, fault.clean_looks) for fault in record.faults] == [
        ("xid-119", Verdict.UNHEALTHY, 0)
    ]
    assert not record.faults[0].power_cycle_seen


@pytest.mark.parametrize(("pause", "is_known"), [(59, True), (61, False)])
def test_health_proven_a_minute_ago_is_trusted(pause: float, is_known: bool) -> None:
    """A quick restart takes no device from the kubelet; a long one must look first."""
    gpu = Gpu0()
    gpu.look()
    assert resumed(make_book(gpu), BOOT, gpu.at + pause).is_known is is_known


@pytest.mark.parametrize("boot_id", [NEXT_BOOT, ""])
def test_health_from_another_boot_is_not_trusted(boot_id: str) -> None:
    """Nor where the kernel does not tell which boot it is."""
    gpu = Gpu0()
    gpu.look()
    assert not resumed(make_book(gpu), boot_id, gpu.at + 1).is_known


def test_gpu_that_missed_looks_is_not_trusted() -> None:
    """Its proof is older than the silence."""
    gpu = Gpu0()
    gpu.look()
    gpu.see(None)
    assert not resumed(make_book(gpu), BOOT, gpu.at + 1).is_known


def test_boot_is_a_power_cycle_and_moves_the_clock() -> None:
    """Ages count on from the last writing; the position in the log is gone with the log."""
    gpu = Gpu0()
    gpu.at = 1000
    gpu.xid(79)
    gpu.look(2, recovery_action=1)
    book = resume_verdicts(make_book(gpu, kernel_log_sequence=17), NEXT_BOOT, 30.0)
    fault = next(fault for fault in book.records[0].faults if fault.xid == 79)
    assert (fault.power_cycle_seen, fault.last_at, book.kernel_log_sequence) == (True, 20.0, None)
    assert book.records[0].occurrences[0].times == (20.0,)


def test_clock_that_went_back_is_another_boot() -> None:
    """The same name with a smaller time cannot be the same count of seconds."""
    gpu = Gpu0()
    gpu.at = 1000
    gpu.look()
    assert not resumed(make_book(gpu), BOOT, 10.0).is_known


def test_boot_forgets_windows_and_keeps_what_lasts() -> None:
    """Links that hardware has, errors that were accepted."""
    gpu = Gpu0()
    gpu.look(nvlinks_active=18, ecc_uncorrected_volatile=2, pcie_replay_count=5, clock_event_reasons=0x8)
    levels = resumed(make_book(gpu), NEXT_BOOT, 5.0).levels
    assert (levels.links_expected, levels.uncorrected_baseline, levels.replays, levels.throttled_minutes) == (
        18,
        2,
        None,
        (),
    )


def test_returns_keep_their_age_over_a_boot() -> None:
    """A reboot does not reset the count of a flapping device."""
    gpu = Gpu0()
    gpu.look(recovery_action=1)
    gpu.look(2)
    book = replace(make_book(gpu), saved_at=gpu.at + 100)
    assert resumed(book, NEXT_BOOT, 10.0).returns[0].at == -90.0


def test_a_boot_moves_the_week_of_lost_pages() -> None:
    """How long ago the last page was lost is known on the new clock, too."""
    gpu = Gpu0()
    gpu.at = 1000
    gpu.look(retired_pages_double_bit=20, nvlink_speed_min_mbps=26562, nvlink_speed_max_mbps=26562)
    pages_at = gpu.at
    book = make_book(gpu)
    levels = resumed(book, NEXT_BOOT, 30.0).levels
    assert levels.retired_double_bit == CounterWindow(at=pages_at + 30.0 - book.saved_at, count=20)
    assert levels.nvlink_speed_expected == 26562
