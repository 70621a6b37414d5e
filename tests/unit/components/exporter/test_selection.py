"""Lists of fields in DCGM exporter's CSV form."""

import pytest

from nodeagent.components.exporter.catalogue.aliases import ALIASES
from nodeagent.components.exporter.catalogue.all_fields import FIELDS, find_field, list_readings
from nodeagent.components.exporter.catalogue.missing import COMMON_MISSING, explain_missing
from nodeagent.components.exporter.catalogue.selection import parse_selection, select_defaults
from nodeagent.components.exporter.series.node_series import NodeSeries, SeriesSelection
from tests.unit.components.exporter.builders import (
    START,
    find,
    know,
    make_mig_shares,
    make_node,
    make_sample,
    read_series,
    render,
)

DEFAULTS = {
    "DCGM_FI_DEV_SM_CLOCK",
    "DCGM_FI_DEV_MEM_CLOCK",
    "DCGM_FI_DEV_MEMORY_TEMP",
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_MEM_COPY_UTIL",
    "DCGM_FI_DEV_ENC_UTIL",
    "DCGM_FI_DEV_DEC_UTIL",
    "DCGM_FI_DEV_XID_ERRORS",
    "DCGM_FI_DEV_FB_FREE",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_FB_RESERVED",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE",
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
    "DCGM_FI_DEV_VGPU_LICENSE_STATUS",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "DCGM_FI_PROF_DRAM_ACTIVE",
    "DCGM_FI_PROF_PCIE_TX_BYTES",
    "DCGM_FI_PROF_PCIE_RX_BYTES",
}

COUNTERS = {
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
}


def test_the_default_list_is_that_of_dcgm_exporter() -> None:
    """Same names, same types, and the driver's version as the one label."""
    selection = select_defaults()
    assert {one.name for one in selection.families} == DEFAULTS
    assert {one.name for one in selection.families if one.type == "counter"} == COUNTERS
    assert [one.name for one in selection.labels] == ["DCGM_FI_DRIVER_VERSION"]
    assert not selection.problems


def test_families_come_in_the_order_of_field_ids() -> None:
    """Whatever the order of the list, the exposition has DCGM's, so that it can be compared line by line."""
    selection = parse_selection("DCGM_FI_DEV_GPU_TEMP, gauge, b\nDCGM_FI_DEV_SM_CLOCK, gauge, a\n")
    assert [one.name for one in selection.families] == ["DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_GPU_TEMP"]


def test_a_list_may_have_comments_blank_lines_blanks_and_a_byte_order_mark() -> None:
    """What editors and the shipped lists contain is read."""
    text = (
        '\ufeff# Format\n\n   \nDCGM_FI_DEV_DEC_UTIL , GAUGE , "Use, in percent"\r\nDCGM_FI_DRIVER_VERSION, label, v\n'
    )
    selection = parse_selection(text)
    assert [(one.name, one.type, one.help) for one in selection.families] == [
        ("DCGM_FI_DEV_DEC_UTIL", "gauge", "Use, in percent")
    ]
    assert [one.name for one in selection.labels] == ["DCGM_FI_DRIVER_VERSION"]
    assert not selection.problems


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("DCGM_FI_DEV_SM_CLOCK, gauge", "has 2 parts"),
        ("DCGM_FI_DEV_SM_CLOCK, gauge, a, b", "needs quotes"),
        ('DCGM_FI_DEV_SM_CLOCK, gauge, "open', "not CSV"),
        ("DCGM_FI_DEV_SM_CLOCK, speed, a", "none of gauge, counter, label"),
        ("DCGM_FI_DEV_SM_CLOCK, label, a", "write gauge or counter"),
        ("DCGM_FI_DRIVER_VERSION, gauge, a", "write label"),
        ("DCGM_FI_DEV_DIAG_MEMORY_RESULT, gauge, a", "diagnostics"),
        ("DCGM_FI_DEV_SOMETHING_NEW, gauge, a", "no field that nodeagent knows"),
        ("node_cpu_seconds, counter, a", "no field of DCGM"),
        ("DCGM_FI_DEV_GPU_TEMP, gauge, again", "listed already"),
    ],
)
def test_a_line_that_cannot_be_used_is_named_and_the_others_are_used(line: str, reason: str) -> None:
    """The number of the line, what is wrong with it, and no harm to its neighbours."""
    selection = parse_selection(f"DCGM_FI_DEV_GPU_TEMP, gauge, t\n{line}\nDCGM_FI_DEV_PSTATE, gauge, p\n")
    assert [one.name for one in selection.families] == ["DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_PSTATE"]
    (problem,) = selection.problems
    assert problem.line == 2
    assert reason in str(problem)


def test_a_family_carries_the_spelling_of_the_list() -> None:
    """New names of DCGM 4.6 and those of the 1.x exporter are fields too, shown as they were asked for."""
    selection = parse_selection("dcgm_gpu_temp, gauge, a\nDCGM_FI_DEV_GPU_TEMP_CELSIUS, gauge, b\n")
    assert [one.name for one in selection.families] == ["DCGM_FI_DEV_GPU_TEMP_CELSIUS", "dcgm_gpu_temp"]
    assert {one.field.name for one in selection.families} == {"DCGM_FI_DEV_GPU_TEMP"}


def test_every_alias_leads_to_a_field() -> None:
    """An alias of nothing would be refused as unknown."""
    assert [alias for alias in ALIASES if find_field(alias) is None] == []


def test_names_and_numbers_are_unique() -> None:
    """Two fields of one name or one id would hide each other."""
    assert len({field.name for field in FIELDS}) == len(FIELDS) == len({field.number for field in FIELDS})


def test_what_is_missing_has_a_reason_and_is_not_in_the_catalogue() -> None:
    assert all(explain_missing(name) and find_field(name) is None for name in COMMON_MISSING)
    assert explain_missing("up") is None


LOCATIONS = ("L1", "L2", "DEV", "REG", "TEX", "SHM", "CBU", "SRM", "TOTAL")
NVML_GIVES = [
    *(f"DEV_{name}_VIOLATION" for name in ("POWER", "THERMAL", "SYNC_BOOST", "BOARD_LIMIT", "LOW_UTIL", "RELIABILITY")),
    *(f"DEV_TOTAL_{name}_CLOCKS_VIOLATION" for name in ("APP", "BASE")),
    *(
        f"DEV_ECC_{kind}_{life}_{at}"
        for kind in ("SBE", "DBE")
        for life in ("VOL", "AGG")
        for at in (*LOCATIONS, "TOTAL")
    ),
    *(f"DEV_{name}" for name in ("APP_SM_CLOCK", "APP_MEM_CLOCK", "MAX_SM_CLOCK", "MAX_MEM_CLOCK", "MAX_VIDEO_CLOCK")),
    *(f"DEV_{name}_TEMP" for name in ("MEM_MAX_OP", "GPU_MAX_OP", "SLOWDOWN", "SHUTDOWN")),
    *(f"DEV_POWER_MGMT_LIMIT{end}" for end in ("", "_MIN", "_MAX", "_DEF")),
    *(f"DEV_BANKS_REMAP_ROWS_AVAIL_{room}" for room in ("MAX", "HIGH", "PARTIAL", "LOW", "NONE")),
    *(f"DEV_NVLINK_{way}BANDWIDTH_L{link}" for way in ("", "TX_", "RX_") for link in range(18)),
    *(
        f"DEV_NVLINK_{kind}_ERROR_COUNT_L{n}"
        for kind in ("CRC_FLIT", "CRC_DATA", "REPLAY", "RECOVERY")
        for n in range(18)
    ),
    *(f"DEV_NVLINK_COUNT_FEC_HISTORY_{step}" for step in range(16)),
    *(f"DEV_NVLINK_ERROR_DL_{kind}" for kind in ("CRC", "RECOVERY", "REPLAY")),
    *(f"DEV_NVLINK_COUNT_{way}_{what}" for way in ("TX", "RX") for what in ("PACKETS", "BYTES")),
    *(f"DEV_NVLINK_COUNT_{kind}_BER{form}" for kind in ("SYMBOL", "EFFECTIVE") for form in ("", "_FLOAT")),
    *(
        f"DEV_C2C_{name}"
        for name in ("LINK_COUNT", "LINK_STATUS", "MAX_BANDWIDTH", "LINK_ERROR_INTR", "LINK_POWER_STATE")
    ),
    *(f"DEV_{name}" for name in ("ECC_PENDING", "THRESHOLD_SRM", "COMPUTE_MODE", "POWER_USAGE_INSTANT")),
    *(f"DEV_{name}" for name in ("PCIE_COUNT_CORRECTABLE_ERRORS", "FABRIC_HEALTH_SUMMARY", "FABRIC_CLUSTER_UUID")),
    *(f"PROF_NVLINK_L{link}_{way}_BYTES" for link in range(18) for way in ("TX", "RX")),
    *(f"PROF_{name}{n}_ACTIVE" for name, most in (("NVDEC", 8), ("NVJPG", 8), ("NVOFA", 2)) for n in range(most)),
    *(
        f"PROF_PIPE_{name}_ACTIVE"
        for name in ("TENSOR_IMMA", "TENSOR_HMMA", "TENSOR_DFMA", "INT", "FP64", "FP32", "FP16")
    ),
    *(f"PROF_C2C_{way}_{what}_BYTES" for way in ("TX", "RX") for what in ("ALL", "DATA")),
    *(f"PROF_{name}_BYTES_TOTAL" for name in ("PCIE_TX", "PCIE_RX")),
]


def test_what_nvml_gives_can_be_had() -> None:
    """Each of these names is in lists of the field; a list that names it gets it."""
    assert [name for name in NVML_GIVES if find_field(f"DCGM_FI_{name}") is None] == []


def test_only_what_is_listed_is_sampled() -> None:
    """The default list needs no reading beside the ordinary sample; two directions of a link need two readings."""
    assert list_readings(one.field for one in select_defaults().families) == ()
    text = "DCGM_FI_DEV_NVLINK_BANDWIDTH_L3, gauge, x\nDCGM_FI_DEV_NVLINK_TX_BANDWIDTH_L3, gauge, x\n"
    chosen = parse_selection(text + "DCGM_FI_DEV_GPU_TEMP_SLOWDOWN_CELSIUS, gauge, x\n")
    assert chosen.problems == ()
    readings = list_readings(one.field for one in chosen.families)
    assert readings == ("call/slowdown_celsius", "field/138/3", "field/139/3")


def test_a_reading_on_demand_is_shown_in_its_unit() -> None:
    """Watts, ratios and rates of links; what is not there is absent; an instance gets nothing that is the GPU's."""
    names = ("POWER_USAGE_INSTANT", "POWER_MGMT_LIMIT_MIN", "NVLINK_BANDWIDTH_L0", "SLOWDOWN_TEMP")
    lines = [f"DCGM_FI_DEV_{name}, gauge, x" for name in names]
    lines += [f"DCGM_FI_PROF_{name}, gauge, x" for name in ("PIPE_INT_ACTIVE", "NVDEC0_ACTIVE", "C2C_TX_ALL_BYTES")]
    requests = SeriesSelection(parse_selection("\n".join(lines)))
    first = {"field/186/0": 321_500.0, "call/power_limit_min": 200_900.0, "field/138/0": 0.0, "field/139/0": 0.0}
    second = first | {"field/138/0": 3e6, "field/139/0": 1e6, "gpm/4": 12.5, "gpm/30": 50.0, "gpm/100": 2.0}
    second |= {"field/138/1": 5e6}  # a link that has just come up has no rate yet
    series = NodeSeries()
    render(make_node(make_sample(extras=first)), know(), requests, series)
    found = read_series(render(make_node(make_sample(extras=second), seconds=START + 10), know(), requests, series))
    assert {name.removeprefix("DCGM_FI_"): value for (name, _), value in found.items() if name.startswith("DCGM")} == {
        "DEV_POWER_USAGE_INSTANT": 321.5,
        "DEV_POWER_MGMT_LIMIT_MIN": 200,
        "DEV_NVLINK_BANDWIDTH_L0": 400,
        "PROF_PIPE_INT_ACTIVE": 0.125,
        "PROF_NVDEC0_ACTIVE": 0.5,
        "PROF_C2C_TX_ALL_BYTES": 2 * 1024**2,
    }
    partitioned = make_sample(extras=second, mig=make_mig_shares(0, 2))
    found = read_series(render(make_node(partitioned), know(mig=2), requests))
    assert not find(found, "DCGM_FI_PROF_PIPE_INT_ACTIVE")
    assert len(find(found, "DCGM_FI_PROF_NVDEC0_ACTIVE")) == 2
