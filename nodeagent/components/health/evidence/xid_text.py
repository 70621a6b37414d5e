"""Decodes the text after an XID's number: link registers, reset flags, the new recovery action.

Only the kernel log has the text; an event of NVML is a number alone.
Refuses unknown text: without a reading the catalogue's entry stands.
"""

import re
from typing import Final

from nodeagent.model.health import ReturnRule, Verdict
from nodeagent.model.remedies import Remedy
from nodeagent.model.values import Value


class Reading(Value, frozen=True):
    """The meaning of one occurrence by its text, in place of the catalogue's entry."""

    verdict: Verdict
    rule: ReturnRule
    remedy: Remedy
    detail: str


NEW_LAYOUT_SINCE: Final = 575
"""Driver branch from which the sub-unit of an NVLink 5 error sits in other bits."""

_WORD = re.compile(r"0x([0-9a-fA-F]{1,8})\b")
_ACTION = re.compile(r"0x([0-9a-fA-F]{1,4})\s*\(")
_RESET_FLAG = re.compile(r"(?<![-\w])(D-)?RST: Yes")
_SEVERITY = re.compile(r"\b(Nonfatal|Fatal)\b")


def read_text(xid: int, message: str, *, driver_branch: int | None = None) -> Reading | None:
    """The reading of one line; `None` where the text adds nothing to the number."""
    if xid == 74:
        return _read_nvlink(_list_words(message))
    if xid in {94, 95}:
        return _read_containment(message)
    if 144 <= xid <= 150:
        return _read_nvlink_5(message, is_new=driver_branch is None or driver_branch >= NEW_LAYOUT_SINCE)
    return None


def parse_recovery_action(message: str) -> int | None:
    """The new action in the text of XID 154, after the old action; `None` for text that cannot be read."""
    actions = _ACTION.findall(message)
    return int(actions[-1], 16) if len(actions) >= 2 else None


def _list_words(message: str) -> list[int]:
    return [int(word, 16) for word in _WORD.findall(message)]


def _fault(detail: str) -> Reading:
    return Reading(
        verdict=Verdict.UNHEALTHY, rule=ReturnRule.RESET, remedy=Remedy.RESET_GPU, detail=f"registers say {detail}"
    )


def _mark(detail: str) -> Reading:
    return Reading(
        verdict=Verdict.SUSPECT,
        rule=ReturnRule.LEVELS_CLEAN,
        remedy=Remedy.CHECK_LINKS,
        detail=f"registers say {detail}",
    )


def _ignore(detail: str) -> Reading:
    return Reading(
        verdict=Verdict.HEALTHY, rule=ReturnRule.NEVER_LEFT, remedy=Remedy.NOTHING, detail=f"registers say {detail}"
    )


def _read_containment(message: str) -> Reading | None:
    """94 and 95 end with whether a reset is needed at once, or after the running work."""
    match = _RESET_FLAG.search(message)
    if match is None:
        return None
    remedy = Remedy.DRAIN_AND_RESET if match[1] else Remedy.RESET_GPU
    return Reading(
        verdict=Verdict.UNHEALTHY, rule=ReturnRule.RESET, remedy=remedy, detail="the driver says that a reset is needed"
    )


# XID 74, up to Hopper: bits of the first word. Words 3 to 5 have no harmless bit that is known.
_IGNORED_BITS = frozenset({0, 1, 20, 23, 30})
_MARKED_BITS = frozenset({4, 5, 21, 22, 27, 29})


def _read_nvlink(words: list[int]) -> Reading | None:
    if len(words) < 7:
        return None
    bits = {bit for bit in range(32) if words[0] >> bit & 1}
    if bits - _IGNORED_BITS - _MARKED_BITS or any(words[2:5]):
        return _fault("a hardware or seating fault of the link")
    if bits & _MARKED_BITS:
        return _mark("a marginal link")
    return _ignore("a follow-on of another error")


class _Unit(Value, frozen=True):
    """Error statuses of one sub-unit; an unlisted status is judged by the severity in the line."""

    ignored: frozenset[int] = frozenset()
    reset: frozenset[int] = frozenset()
    all_ignored: bool = False
    all_reset: bool = False


def _unit(ignored: tuple[int, ...], reset: tuple[int, ...] = ()) -> _Unit:
    return _Unit(ignored=frozenset(ignored), reset=frozenset(reset))


_SOFTWARE_NOTE = 0x8000_0000
_TLW = _unit((0x1, 0x2), reset=(0x4,))
_HARMLESS, _SEVERE = _Unit(all_ignored=True), _Unit(all_reset=True)
_UNITS: Final[dict[str, _Unit]] = {
    "saw": _unit((0x1, 0x4, 0x8, 0x20), reset=(0x2, 0x10)),
    "rlw-control": _Unit(),
    "rlw-remap": _unit((0x100, 0x200), reset=(0x40, 0x80)),
    "rlw-response": _unit((0x1,), reset=(0x2,)),
    "rlw-receive": _unit((0x1, 0x2, 0x4, 0x8)),
    "rlw-receive-marked": _unit((0x8,), reset=(0x1, 0x2, 0x4)),
    "rlw-tracker": _unit((0x2,), reset=(0x1, 0x10, 0x20)),
    "rlw-tag": _unit((0x1, 0x10000), reset=(0x2, 0x20000, 0x100000)),
    "tlw": _TLW,
    "trex": _HARMLESS,
    "nvlpw": _HARMLESS,
    "netir-interrupt": _SEVERE,
    "netir-link-down": _Unit(),
    "netir-bit-errors": _HARMLESS,
    "netir-firmware": _unit((0x3,), reset=(0x1, 0x4, 0x5, 0x7)),
    "mse": _SEVERE,
}
_RLW = {
    0x3: "rlw-control",
    0x4: "rlw-remap",
    0x5: "rlw-response",
    0x6: "rlw-receive",
    0x7: "rlw-tracker",
    0x8: "rlw-tag",
}
_NEW_CODES: Final[dict[int, str]] = {
    0x0: "mse",
    0x1: "saw",
    **_RLW,
    **dict.fromkeys((0x9, 0xA, 0xB, 0xC, 0xD), "tlw"),
    0xE: "trex",
    0xF: "nvlpw",
    0x18: "netir-interrupt",
    0x11: "netir-link-down",
    0x13: "netir-bit-errors",
    0x14: "netir-firmware",
}
_OLD_CODES: Final[dict[tuple[int, int], str]] = {
    (0, 0x0): "mse",
    (1, 0x1): "saw",
    **{(2, code): name for code, name in _RLW.items()},
    **dict.fromkeys(((3, 0x9), (3, 0xA), (3, 0xB)), "tlw"),
    (4, 0xC): "trex",
    (5, 0x0): "nvlpw",
    (6, 0x0): "netir-interrupt",
    (6, 0xE): "netir-link-down",
    (6, 0x11): "netir-bit-errors",
    (6, 0x12): "netir-firmware",
}
"""Before that branch: family in the lowest five bits, code in the next five."""
_PEER_OR_HOST_REASONS = frozenset({0x26, 0x28})


def _read_nvlink_5(message: str, *, is_new: bool) -> Reading | None:
    words, severity = _list_words(message), _SEVERITY.search(message)
    if len(words) < 2 or severity is None:
        return None
    info, status = words[0], words[1]
    name = _NEW_CODES.get(info & 0x7F) if is_new else _OLD_CODES.get((info & 0x1F, info >> 5 & 0x1F))
    if name == "rlw-receive" and info >> (7 if is_new else 10) & 1:
        name = "rlw-receive-marked"
    is_fatal = severity[1] == "Fatal"
    if name is None:
        return _fault("an unknown fatal link error") if is_fatal else _mark("an unknown link error")
    return _judge_unit(name, info, status, is_fatal=is_fatal)


def _judge_unit(name: str, info: int, status: int, *, is_fatal: bool) -> Reading:
    """The table's entry for a status; a line marked fatal is the worse of the two."""
    unit = _UNITS[name]
    if name == "netir-link-down":
        is_harmless = info >> 20 & 0x3F in _PEER_OR_HOST_REASONS
        is_severe = not is_harmless
    else:
        is_harmless = unit.all_ignored or status in unit.ignored or status == _SOFTWARE_NOTE
        is_severe = unit.all_reset or status in unit.reset
    if is_severe or is_fatal:
        return _fault(f"a fault of link unit {name}, status {status:#x}")
    if is_harmless:
        return _ignore(f"link unit {name} has nothing to mend")
    return _mark(f"link unit {name} has status {status:#x}")
