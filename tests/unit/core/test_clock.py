import time

from nodeagent.core.clock import SystemClock


def test_system_clock_reads_the_machine_s_clocks() -> None:
    """Both clocks lie between two readings of the machine's own."""
    clock = SystemClock()
    assert time.monotonic() <= clock.monotonic() <= time.monotonic()
    assert time.time() <= clock.wall() <= time.time()
