"""Fields read on demand: NVLink link by link, NVLink 5, the link to the CPU."""

from collections.abc import Iterator
from functools import partial

from nodeagent.components.exporter.catalogue.field import Field
from nodeagent.components.exporter.fields.extra_field import make_field, read_rate

LINKS = 18
"""As many as DCGM has names for."""
ALL_LINKS = 0xFFFFFFFF
_FIFTH = {"TX_PACKETS": 201, "TX_BYTES": 202, "RX_PACKETS": 203, "RX_BYTES": 204}
"""In the order of DCGM's numbers, with NVML's; errors are part of the ordinary sample."""


def _list_each() -> Iterator[Field]:
    """Link by link."""
    errors = (("CRC_FLIT", 400, 2), ("CRC_DATA", 410, 3), ("REPLAY", 420, 0), ("RECOVERY", 430, 1))
    for name, number, counter in errors:
        for link in range(LINKS):
            text, reading = f"{name.replace('_', ' ')} errors of link {link}.", f"link_error/{counter}/{link}"
            yield make_field(f"DEV_NVLINK_{name}_ERROR_COUNT_L{link}", number, "counter", text, reading)
    rates = (("", 440, (138, 139)), ("TX_", 825, (138,)), ("RX_", 879, (139,)))
    for name, number, fields in rates:
        for link in range(LINKS):
            readings = tuple(f"field/{one}/{link}" for one in fields)
            yield Field(
                f"DCGM_FI_DEV_NVLINK_{name}BANDWIDTH_L{link}",
                number,
                "counter",
                f"Payload over link {link}, about MB/s; a rate in spite of its type.",
                partial(read_rate, readings=readings),
                readings=readings,
            )


def _list_fifth() -> Iterator[Field]:
    """NVLink 5 and later, all links together."""
    for offset, (name, reading) in enumerate(_FIFTH.items()):
        text = f"NVLink 5, all links together: {name.lower().replace('_', ' ')}."
        yield make_field(f"DEV_NVLINK_COUNT_{name}", 1200 + offset, "counter", text, _all(reading))
    raw = "as NVML packs it: exponent in the low byte."
    for name, number, reading in (("SYMBOL_BER", 1215, 222), ("EFFECTIVE_BER", 1217, 220)):
        text = f"NVLink 5, {name.lower().replace('_', ' ')} {raw}"
        yield make_field(f"DEV_NVLINK_COUNT_{name}", number, "gauge", text, _all(reading))
    for name, number, reading, text in (
        ("NVLINK_ECC_DATA_ERROR_COUNT_TOTAL", 1220, 160, "ECC errors in NVLink's data."),
        ("NVLINK_ERROR_DL_CRC", 497, 163, "CRC errors of NVLink's data layer."),
        ("NVLINK_ERROR_DL_RECOVERY", 498, 162, "Recoveries of NVLink's data layer."),
        ("NVLINK_ERROR_DL_REPLAY", 499, 161, "Replays of NVLink's data layer."),
    ):
        yield make_field(f"DEV_{name}", number, "counter", text, _all(reading))
    for step in range(16):
        text = f"NVLink 5, code words with {step} symbols corrected."
        yield make_field(
            f"DEV_NVLINK_COUNT_FEC_HISTORY_{step}", 1404 + step, "counter", text, f"field/{235 + step}/{ALL_LINKS}"
        )


def _list_c2c() -> Iterator[Field]:
    """The link between GPU and CPU of a superchip."""
    c2c = (("LINK_COUNT", 285, 170), ("LINK_STATUS", 286, 171), ("MAX_BANDWIDTH", 287, 172))
    for name, number, reading in c2c:
        text = f"Link between GPU and CPU, as NVML gives it: {name.lower().replace('_', ' ')}."
        yield make_field(f"DEV_C2C_{name}", number, "gauge", text, f"field/{reading}/0")
    for offset, name in enumerate(("INTR", "REPLAY", "REPLAY_B2B")):
        text = f"Errors of the link between GPU and CPU: {name.lower().replace('_', ' ')}."
        yield make_field(f"DEV_C2C_LINK_ERROR_{name}", 1400 + offset, "counter", text, f"field/{231 + offset}/0")
    yield make_field("DEV_C2C_LINK_POWER_STATE", 1403, "gauge", "Power state of the link to the CPU.", "field/234/0")


def _all(field: int) -> str:
    return f"field/{field}/{ALL_LINKS}"


FIELDS = (*_list_each(), *_list_fifth(), *_list_c2c())
