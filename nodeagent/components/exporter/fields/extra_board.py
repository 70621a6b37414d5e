"""Fields read on demand: modes, limits, time held back, ECC by part of the chip."""

from collections.abc import Iterator

from nodeagent.components.exporter.catalogue.field import Field, to_watts, to_whole_watts
from nodeagent.components.exporter.fields.extra_field import make_field

_SMOOTHING = """
    ENABLED PRIV_LVL IMM_RAMP_DOWN_ENABLED APPLIED_TMP_CEIL APPLIED_TMP_FLOOR MAX_PERCENT_TMP_FLOOR_SETTING
    MIN_PERCENT_TMP_FLOOR_SETTING HW_CIRCUITRY_PERCENT_LIFETIME_REMAINING MAX_NUM_PRESET_PROFILES
    PROFILE_PERCENT_TMP_FLOOR PROFILE_RAMP_UP_RATE PROFILE_RAMP_DOWN_RATE PROFILE_RAMP_DOWN_HYST_VAL
    ACTIVE_PRESET_PROFILE ADMIN_OVERRIDE_PERCENT_TMP_FLOOR ADMIN_OVERRIDE_RAMP_UP_RATE
    ADMIN_OVERRIDE_RAMP_DOWN_RATE ADMIN_OVERRIDE_RAMP_DOWN_HYST_VAL
"""
"""In the order of NVML's and of DCGM's numbers."""


def _list_board() -> Iterator[Field]:
    """Limits, modes, time held back."""
    yield make_field("DEV_COMPUTE_MODE", 65, "gauge", "Compute mode as NVML numbers it.", "call/compute_mode")
    clocks = (("SM", "sm"), ("MEM", "memory"), ("VIDEO", "video"))
    for offset, (short, word) in enumerate(clocks[:2]):
        text = f"Clock that applications have set for the {word}, MHz."
        yield make_field(f"DEV_APP_{short}_CLOCK", 110 + offset, "gauge", text, f"call/app_{word}_clock")
    for offset, (short, word) in enumerate(clocks):
        text = f"Highest {word} clock, MHz."
        yield make_field(f"DEV_MAX_{short}_CLOCK", 113 + offset, "gauge", text, f"call/max_{word}_clock")
    celsius = "degrees Celsius."
    yield make_field(
        "DEV_MEM_MAX_OP_TEMP", 151, "gauge", f"Most the memory may have, {celsius}", "call/memory_max_celsius"
    )
    yield make_field("DEV_GPU_MAX_OP_TEMP", 152, "gauge", f"Most the GPU may have, {celsius}", "call/gpu_max_celsius")
    yield make_field("DEV_SLOWDOWN_TEMP", 158, "gauge", f"Where the GPU slows down, {celsius}", "call/slowdown_celsius")
    yield make_field("DEV_SHUTDOWN_TEMP", 159, "gauge", f"Where the GPU shuts down, {celsius}", "call/shutdown_celsius")
    text = "Power the board draws at this moment, W."
    yield make_field("DEV_POWER_USAGE_INSTANT", 157, "gauge", text, "field/186/0", to_watts, decimals=True)
    limits = (("MIN", 161, "Lowest", "min"), ("MAX", 162, "Highest", "max"), ("DEF", 163, "Usual", "default"))
    for short, number, word, call in limits:
        name, text = f"DEV_POWER_MGMT_LIMIT_{short}", f"{word} power limit that can be set, W."
        yield make_field(name, number, "gauge", text, f"call/power_limit_{call}", to_whole_watts, decimals=True)
    slowed = (
        ("SYNC_BOOST_VIOLATION", 242, 76, "to keep pace with other GPUs"),
        ("BOARD_LIMIT_VIOLATION", 243, 77, "by the board's limit"),
        ("LOW_UTIL_VIOLATION", 244, 78, "for want of work"),
        ("RELIABILITY_VIOLATION", 245, 79, "by the limit of reliability"),
        ("TOTAL_APP_CLOCKS_VIOLATION", 246, 80, "below the clocks of applications"),
        ("TOTAL_BASE_CLOCKS_VIOLATION", 247, 81, "below the base clocks"),
        ("CLOCKS_EVENT_REASON_SYNC_BOOST_NS", 1421, 76, "to keep pace with other GPUs"),
        ("CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS", 1422, 269, "by the driver for heat"),
        ("CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS", 1423, 270, "by the hardware for heat"),
        ("CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS", 1424, 271, "by the power brake"),
    )
    for name, number, reading, why in slowed:
        yield make_field(f"DEV_{name}", number, "counter", f"Time slowed down {why}, ns.", f"field/{reading}/0")


def _list_smoothing() -> Iterator[Field]:
    for offset, name in enumerate(_SMOOTHING.split()):
        text = f"Power smoothing, as NVML gives it: {name.lower().replace('_', ' ')}."
        yield make_field(f"DEV_PWR_SMOOTHING_{name}", 1425 + offset, "gauge", text, f"field/{251 + offset}/0")


def _list_memory() -> Iterator[Field]:
    """ECC errors by unit of the chip, and remaining spare rows."""
    yield make_field("DEV_ECC_PENDING", 301, "gauge", "Whether ECC will be on after the next reboot.", "field/2/0")
    # NVML has fields for most parts, corrected and uncorrected in turn, and a question for those that it has none for.
    numbers = {"L1": 7, "L2": 9, "DEV": 11, "REG": 13, "TEX": 15}
    asked = {"SHM": 5, "CBU": 6, "SRM": 7}
    for life, first, shift in (("VOL", 314, 0), ("AGG", 324, 11)):
        when = "since the driver was loaded" if life == "VOL" else "in the life of the board"
        for place, part in enumerate((*numbers, *asked)):
            for kind, (short, word) in enumerate((("SBE", "Corrected"), ("DBE", "Uncorrected"))):
                if part in numbers:
                    number, reading = first + 2 * place + kind, f"field/{numbers[part] + shift + kind}/0"
                else:
                    start = 334 if life == "VOL" else 340
                    number = start + 2 * (place - len(numbers)) + kind
                    reading = f"memory_error/{kind}/{int(life == 'AGG')}/{asked[part]}"
                text = f"{word} errors in {part} {when}."
                yield make_field(f"DEV_ECC_{short}_{life}_{part}", number, "counter", text, reading)
    for offset, (short, call) in enumerate(
        (("MAX", "max"), ("HIGH", "high"), ("PARTIAL", "partial"), ("LOW", "low"), ("NONE", "none"))
    ):
        name, text = f"DEV_BANKS_REMAP_ROWS_AVAIL_{short}", f"Banks with {call} room for remapped rows."
        yield make_field(name, 385 + offset, "gauge", text, f"call/remap_banks_{call}")


FIELDS = (*_list_board(), *_list_smoothing(), *_list_memory())
