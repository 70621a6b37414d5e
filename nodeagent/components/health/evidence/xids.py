"""THE catalogue of XIDs: meaning, scope and way back of the driver's error numbers.

`docs/xids.md` is made from the catalogue.
Owns one entry per number. Refuses the node's policy (`policy.py`) and the text of a line (`xid_text.py`).
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from nodeagent.model.health import ReturnRule, Verdict
from nodeagent.model.remedies import Remedy
from nodeagent.model.values import Value

HOUR: Final = 3600.0
DAY: Final = 24 * HOUR


class XidClass(StrEnum):
    """Groups of XIDs for `health.xid_policy`."""

    APPLICATION = "application"
    ENGINE = "engine"
    MEMORY = "memory"
    FIRMWARE = "firmware"
    BUS = "bus"
    LINK = "link"
    POWER = "power"
    NOTICE = "notice"
    UNUSED = "unused"
    UNKNOWN = "unknown"


class Scope(StrEnum):
    """The devices that an XID hits."""

    INSTANCE = "instance"
    """The MIG instance it names, or the GPU where it names none."""
    GPU = "gpu"


class Repeat(Value, frozen=True):
    """The verdict of an XID that repeats."""

    count: int
    verdict: Verdict
    rule: ReturnRule
    per_holder: bool = False
    """Count different holders of the device, not occurrences: the same fault in many programs is not the program's."""
    quiet_seconds: float = DAY


class XidEntry(Value, frozen=True):
    """One XID."""

    number: int
    name: str
    xid_class: XidClass
    causes: str
    """Letters of `CAUSES`, the likeliest first."""
    verdict: Verdict
    rule: ReturnRule
    remedy: Remedy
    scope: Scope = Scope.GPU
    quiet_seconds: float = 0.0
    """For rule W: how long nothing of it may be heard."""
    repeat: Repeat | None = None
    note: str = ""

    @property
    def meaning(self) -> str:
        """Name and likely causes of the XID, in a sentence."""
        causes = ", ".join(CAUSES[letter] for letter in self.causes)
        sentence = f"{self.name}; possible causes: {causes}" if causes else self.name
        return f"{sentence}; {self.note}" if self.note else sentence


CAUSES: Final = {
    "A": "application",
    "D": "driver or firmware",
    "M": "GPU memory",
    "H": "GPU hardware",
    "L": "NVLink or C2C",
    "B": "PCIe bus",
    "T": "heat or power",
    "S": "host system",
}

FATAL_TWICE: Final = Repeat(count=2, verdict=Verdict.UNHEALTHY, rule=ReturnRule.SERVICE, quiet_seconds=7 * DAY)
TWICE: Final = Repeat(count=2, verdict=Verdict.SUSPECT, rule=ReturnRule.QUIET_PERIOD)
THREE_HOLDERS: Final = Repeat(count=3, verdict=Verdict.SUSPECT, rule=ReturnRule.QUIET_PERIOD, per_holder=True)


def _note(
    numbers: Iterable[int],
    name: str,
    xid_class: XidClass,
    causes: str,
    remedy: Remedy = Remedy.NOTHING,
    *,
    scope: Scope = Scope.INSTANCE,
    repeat: Repeat | None = None,
    note: str = "",
) -> list[XidEntry]:
    """XIDs that are recorded and change no verdict by themselves."""
    return [
        XidEntry(
            number=number,
            name=name.format(engine=engine),
            xid_class=xid_class,
            causes=causes,
            verdict=Verdict.HEALTHY,
            rule=ReturnRule.NEVER_LEFT,
            remedy=remedy,
            scope=scope,
            repeat=repeat,
            note=note,
        )
        for engine, number in enumerate(numbers)
    ]


def _watch(
    numbers: Iterable[int],
    name: str,
    xid_class: XidClass,
    causes: str,
    remedy: Remedy = Remedy.WATCH,
    *,
    quiet_seconds: float = DAY,
) -> list[XidEntry]:
    """XIDs after which a device works and needs attention, until a quiet period has passed."""
    return [
        XidEntry(
            number=number,
            name=name.format(engine=engine),
            xid_class=xid_class,
            causes=causes,
            verdict=Verdict.SUSPECT,
            rule=ReturnRule.QUIET_PERIOD,
            remedy=remedy,
            quiet_seconds=quiet_seconds,
        )
        for engine, number in enumerate(numbers)
    ]


def _fault(
    number: int,
    name: str,
    xid_class: XidClass,
    causes: str,
    remedy: Remedy = Remedy.RESET_GPU,
    rule: ReturnRule = ReturnRule.RESET,
    *,
    verdict: Verdict = Verdict.UNHEALTHY,
    scope: Scope = Scope.GPU,
    repeat: Repeat | None = None,
    note: str = "",
) -> XidEntry:
    """An XID that takes a device out of service until a reset, a power cycle or service."""
    return XidEntry(
        number=number,
        name=name,
        xid_class=xid_class,
        causes=causes,
        verdict=verdict,
        rule=rule,
        remedy=remedy,
        scope=scope,
        repeat=repeat,
        note=note,
    )


_APP, _ENGINE, _MEMORY, _FIRMWARE = XidClass.APPLICATION, XidClass.ENGINE, XidClass.MEMORY, XidClass.FIRMWARE
_BUS, _LINK, _POWER, _NOTICE = XidClass.BUS, XidClass.LINK, XidClass.POWER, XidClass.NOTICE
_RESTART, _UPDATE, _LOOK = Remedy.RESTART_APPLICATION, Remedy.UPDATE_DRIVER, Remedy.WATCH
_SUSPECT = Verdict.SUSPECT
_TEXT_DECIDES = "the registers in the kernel log line decide how bad it is"

_APPLICATION_XIDS: Final = (
    *_note([8], "channel idle timeout", _APP, "DABT", _RESTART, repeat=TWICE),
    *_note([11, 25], "invalid content in the push buffer", _APP, "DSBTM", _RESTART),
    *_note([13], "graphics or shader engine exception", _APP, "AH", _RESTART, repeat=THREE_HOLDERS),
    *_note([31], "MMU page fault", _APP, "AHD", _RESTART, repeat=THREE_HOLDERS),
    *_note([32], "DMA stream error", _APP, "BSDTM", _RESTART, note="look at PCIe replays if it repeats"),
    *_note([37], "context switch firmware message", _APP, "D", scope=Scope.GPU),
    *_note([38], "context switch firmware timeout", _APP, "D", scope=Scope.GPU, repeat=TWICE),
    *_note([43], "channel reset after an application fault", _APP, "AD", note="the GPU stays usable"),
    *_note([44], "fault during a context switch", _APP, "D"),
    *_note([45], "work was cleaned up after a kill or another XID", _APP, "AD", note="look for the XID before it"),
    *_note([66, 67], "illegal register access", _APP, "DA", scope=Scope.GPU),
    *_note([69], "graphics or compute class error", _APP, "AD", _RESTART),
    *_note([80], "checksum of the push buffer does not match", _APP, "BSD", _RESTART),
    *_note([108, 137], "remote access over NVLink was denied", _APP, "A", _RESTART),
    *_note([141], "CUDA fast path error", _APP, "AD", _RESTART),
    *_note([174], "a process was ended silently", _APP, "D"),
)

_NOTICE_XIDS: Final = (
    *_note([14], "injected from user space", _NOTICE, "", scope=Scope.GPU, note="it never changes a verdict"),
    *_note([106, 107], "test message of the out-of-band interface", _NOTICE, "", scope=Scope.GPU),
    *_note([93], "InfoROM wear limit", _NOTICE, "DH", scope=Scope.GPU, note="counters may no longer be stored"),
    *_note([78], "a virtual GPU could not be started", _NOTICE, "DS", _UPDATE, scope=Scope.GPU),
    *_note([121], "C2C errors were corrected", _NOTICE, "L", scope=Scope.GPU),
    *_note([152, 153], "deep-learning accelerator", _NOTICE, "", scope=Scope.GPU),
    *_note([162], "power smoothing is active again", _NOTICE, "", scope=Scope.GPU, note="it ends XID 163"),
    *_note(
        [154], "recovery action changed", _NOTICE, "", scope=Scope.GPU, note="the action itself is read and followed"
    ),
)

_ENGINE_XIDS: Final = (
    *_note(
        [39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136)],
        "copy engine {engine} exception",
        _ENGINE,
        "ADH",
        _RESTART,
        repeat=THREE_HOLDERS,
    ),
    *_note([68, 83, 84, 88, 89, 96, 97, 98], "video decoder {engine} exception", _ENGINE, "AD", _RESTART),
    *_note([82, *range(99, 106)], "JPEG engine {engine} exception", _ENGINE, "AD", _RESTART),
    *_note([86, 139], "optical flow engine {engine} exception", _ENGINE, "AD", _RESTART),
    *_watch([60], "security engine exception", _ENGINE, "D", _UPDATE),
    *_watch([47, 65, 73, 142], "video encoder {engine} exception", _ENGINE, "D"),
)

_MEMORY_XIDS: Final = (
    _fault(48, "uncorrectable memory error", _MEMORY, "MH"),
    _fault(171, "uncorrectable error in DRAM", _MEMORY, "MH", note="detail of XID 48"),
    _fault(172, "uncorrectable error in SRAM", _MEMORY, "MH", note="detail of XID 48"),
    _fault(63, "a row remap or page retirement was recorded", _MEMORY, "M", Remedy.DRAIN_AND_RESET, verdict=_SUSPECT),
    _fault(64, "a row remap or page retirement failed", _MEMORY, "MH"),
    *_watch([92], "very many corrected memory errors", _MEMORY, "M"),
    _fault(94, "contained memory error", _MEMORY, "MH", _RESTART, verdict=_SUSPECT, scope=Scope.INSTANCE),
    _fault(95, "uncontained memory error", _MEMORY, "MH", note="all work on the GPU is in doubt"),
    _fault(140, "uncorrectable memory error escaped its handling", _MEMORY, "MH"),
    _fault(156, "a resource was retired", _MEMORY, "HM", verdict=_SUSPECT, note="the reset brings it into force"),
    *_watch([157], "a resource could not be retired", _MEMORY, "M", quiet_seconds=7 * DAY),
    _fault(160, "a memory channel was retired", _MEMORY, "M", verdict=_SUSPECT),
    _fault(161, "a memory channel could not be retired", _MEMORY, "M", verdict=_SUSPECT, repeat=FATAL_TWICE),
    _fault(
        168,
        "errors in write-protected memory regions",
        _MEMORY,
        "M",
        Remedy.REBOOT_NODE,
        ReturnRule.POWER_CYCLE,
        verdict=_SUSPECT,
        note="seen only with ECC off",
    ),
    _fault(175, "memory subsystem fault", _MEMORY, "MH"),
    _fault(57, "memory link training error", _MEMORY, "MH", note="boards before A100"),
    _fault(58, "frame buffer error", _MEMORY, "MH", note="boards before A100"),
)

_FIRMWARE_XIDS: Final = (
    _fault(46, "the GPU stopped answering", _FIRMWARE, "DH"),
    *_watch([59, 61], "power controller warning", _FIRMWARE, "DHT"),
    _fault(62, "the power controller halted", _FIRMWARE, "HDT"),
    _fault(109, "context switch timeout", _FIRMWARE, "DAH", note="NVIDIA's device plugin ignores it"),
    _fault(110, "security fault", _FIRMWARE, "H", repeat=FATAL_TWICE),
    _fault(119, "the firmware processor did not answer a call", _FIRMWARE, "DH", note="power-cycle if a reset fails"),
    _fault(120, "error in the firmware processor", _FIRMWARE, "DH"),
    _fault(143, "the GPU could not be initialised", _FIRMWARE, "DH", repeat=FATAL_TWICE),
    _fault(151, "key rotation error in confidential mode", _FIRMWARE, "D", Remedy.REBOOT_NODE, ReturnRule.POWER_CYCLE),
    _fault(158, "fatal timeout", _FIRMWARE, "HD"),
    _fault(169, "the security engine halted", _FIRMWARE, "DH"),
)

_BUS_XIDS: Final = (
    _fault(79, "the GPU fell off the bus", _BUS, "HBSTD", Remedy.POWER_CYCLE, ReturnRule.POWER_CYCLE),
    _fault(167, "fatal PCIe timeout", _BUS, "BH"),
    *_watch([176], "many corrected PCIe errors", _BUS, "B", quiet_seconds=HOUR),
)

_POWER_XIDS: Final = (
    _fault(54, "auxiliary power is missing", _POWER, "TS", Remedy.POWER_CYCLE, ReturnRule.POWER_CYCLE),
    *_watch([163], "power smoothing is off", _POWER, "T", quiet_seconds=DAY),
    _fault(
        164, "power smoothing nears its end of life", _POWER, "T", Remedy.SERVICE, ReturnRule.SERVICE, verdict=_SUSPECT
    ),
    _fault(165, "power smoothing is worn out", _POWER, "T", Remedy.SERVICE, ReturnRule.SERVICE, verdict=_SUSPECT),
)

_NVLINK_5: Final = {
    144: "SAW",
    145: "RLW",
    146: "TLW",
    147: "TREX",
    148: "NVLPW",
    149: "NETIR",
    150: "MSE",
}

_LINK_XIDS: Final = (
    _fault(74, "NVLink error", _LINK, "LH", note=_TEXT_DECIDES),
    _fault(136, "NVLink training failed", _LINK, "L", note="check seating and signal"),
    *(
        _fault(number, f"NVLink 5 unit {unit}", _LINK, "LHD", verdict=_SUSPECT, note=_TEXT_DECIDES)
        for number, unit in _NVLINK_5.items()
    ),
    _fault(155, "an NVLink was taken down by software", _LINK, "DA"),
    *_watch([159], "error of the coherent link", _LINK, "L"),
    _fault(166, "link error in confidential mode", _LINK, "LD"),
    _fault(170, "link error in confidential mode", _LINK, "LD"),
    _fault(173, "fatal C2C link failure", _LINK, "LH"),
)

_UNUSED_NUMBERS: Final = (
    *(*range(1, 8), 9, 10, 12, *range(15, 25), *range(26, 31), *range(33, 37), 42, *range(49, 54), 55, 56),
    *(81, 87, 90, 91, *range(111, 119), *range(122, 126), 138),
)

CATALOGUE: Final[dict[int, XidEntry]] = {
    entry.number: entry
    for entry in sorted(
        (
            *_APPLICATION_XIDS,
            *_NOTICE_XIDS,
            *_ENGINE_XIDS,
            *_MEMORY_XIDS,
            *_FIRMWARE_XIDS,
            *_BUS_XIDS,
            *_POWER_XIDS,
            *_LINK_XIDS,
            *_watch(_UNUSED_NUMBERS, "not used by present hardware", XidClass.UNUSED, "D"),
        ),
        key=lambda entry: entry.number,
    )
}
"""Every known XID, by number."""


def find_xid(number: int) -> XidEntry:
    """The entry of a number; an unknown number asks for attention and is never dropped."""
    known = CATALOGUE.get(number)
    if known is not None:
        return known
    return XidEntry(
        number=number,
        name="not in the catalogue",
        xid_class=XidClass.UNKNOWN,
        causes="D",
        verdict=Verdict.SUSPECT,
        rule=ReturnRule.LEVELS_CLEAN,
        remedy=_LOOK,
        note="a newer driver may say what it is",
    )
