"""Lists of fields in DCGM exporter's CSV form."""

import pytest

from nodeagent.components.exporter.aliases import ALIASES
from nodeagent.components.exporter.catalogue import FIELDS, find_field
from nodeagent.components.exporter.missing import COMMON_MISSING, explain_missing
from nodeagent.components.exporter.selection import parse_selection, select_defaults

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
        ("DCGM_FI_DEV_SOMETHING_NEW, gauge, a", "does not read it yet"),
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
    """Nobody is told that a field is missing which is there."""
    assert all(explain_missing(name) and find_field(name) is None for name in COMMON_MISSING)
    assert explain_missing("up") is None
