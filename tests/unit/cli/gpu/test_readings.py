"""A sample in words."""

from nodeagent.cli.gpu.readings import (
    Reading,
    describe_clocks,
    describe_ecc,
    describe_link,
    describe_slowdown,
    list_readings,
    measure_nvlink,
    measure_pcie,
)
from nodeagent.components.exporter.series.rates import Rates
from nodeagent.model.telemetry import GpuSample, ProfilingSample
from tests.support.samples import make_uuid
from tests.unit.components.exporter.builders import make_sample

BARE = GpuSample(uuid=make_uuid(0))
MIB = 1024 * 1024


def test_what_is_not_told_is_not_shown() -> None:
    """No zero where there is no reading."""
    assert list_readings(BARE) == ()
    assert (describe_clocks(BARE), describe_slowdown(BARE), describe_ecc(BARE), describe_link(BARE)) == ("",) * 4
    assert (str(measure_pcie(BARE)), str(measure_nvlink(BARE))) == ("", "")


def test_clocks_are_held_back_by_something_or_nothing() -> None:
    """Every reason that the driver gives."""
    assert describe_slowdown(make_sample(clock_event_reasons=0x4 | 0x40)) == "power cap, hw thermal"
    assert describe_slowdown(make_sample(clock_event_reasons=1)) == "idle"
    assert describe_slowdown(make_sample(clock_event_reasons=0)) == "nothing"
    assert describe_clocks(make_sample(memory_clock_mhz=2619)) == "1980/2619 MHz"


def test_traffic_comes_from_counters_or_from_totals() -> None:
    """The hardware's own rates are better than differences; one direction alone is none."""
    rates = Rates(
        pcie_transmit_bytes=MIB, pcie_receive_bytes=2 * MIB, nvlink_transmit_kib=1024.0, nvlink_receive_kib=3072.0
    )
    assert str(measure_pcie(BARE, rates)) == "1 MiB/s out, 2 MiB/s in"
    assert str(measure_nvlink(BARE, rates)) == "1 MiB/s out, 3 MiB/s in"
    counted = make_sample(
        profiling=ProfilingSample(
            pcie_transmit_bytes_per_second=5 * MIB,
            pcie_receive_bytes_per_second=6 * MIB,
            nvlink_transmit_bytes_per_second=7 * MIB,
            nvlink_receive_bytes_per_second=8 * MIB,
        )
    )
    assert str(measure_pcie(counted, rates)) == "5 MiB/s out, 6 MiB/s in"
    assert str(measure_nvlink(counted, rates)) == "7 MiB/s out, 8 MiB/s in"


def test_readings_are_grouped_and_carry_their_unit() -> None:
    sample = make_sample(
        fan_speed_percent=40,
        ecc_corrected_volatile=1,
        ecc_uncorrected_volatile=0,
        pcie_generation=5,
        pcie_width=16,
        nvlinks_active=18,
        performance_state=0,
        remapped_rows_pending=True,
        remapped_rows_failed=False,
        profiling=ProfilingSample(sm_active=0.5),
    )
    readings = list_readings(sample)
    for reading in (
        Reading(group="use", name="SMs at work", value="50%"),
        Reading(group="memory", name="total", value="80 GiB"),
        Reading(group="clocks", name="performance state", value="P0"),
        Reading(group="heat and power", name="fan", value="40%"),
        Reading(group="heat and power", name="power", value="651 W"),
        Reading(group="PCIe", name="link", value="gen 5 x16"),
        Reading(group="NVLink", name="links up", value="18"),
        Reading(group="errors", name="ECC since the driver came", value="1 corrected, 0 not"),
        Reading(group="errors", name="row remapping waits for a reset", value="yes"),
        Reading(group="errors", name="row remapping failed", value="no"),
    ):
        assert reading in readings
