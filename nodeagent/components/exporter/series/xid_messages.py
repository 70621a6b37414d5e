"""The meaning of an XID in a few words, for the label `err_msg`; pure."""

from typing import Final

UNKNOWN: Final = "unlisted error, see NVIDIA's XID catalogue"

_TEXTS: Final = {
    8: "GPU stopped processing",
    13: "graphics engine exception of an application",
    31: "GPU memory page fault of an application",
    32: "invalid or corrupted push buffer stream",
    38: "driver firmware error",
    43: "GPU stopped processing for an application",
    45: "preemptive clean-up after earlier errors",
    48: "double-bit ECC error",
    54: "auxiliary power is not connected",
    56: "display engine error",
    57: "error programming the video memory interface",
    58: "unstable video memory interface",
    60: "video processor exception",
    61: "internal micro-controller breakpoint or warning",
    62: "internal micro-controller halt",
    63: "page retired or row remapped",
    64: "page retirement or row remapping failed",
    68: "video decoder exception of an application",
    69: "graphics engine class error",
    73: "video encoder error",
    74: "NVLink error",
    78: "vGPU start error",
    79: "GPU has fallen off the bus",
    92: "high rate of corrected ECC errors",
    93: "InfoROM wear limit exceeded",
    94: "contained ECC error",
    95: "uncontained ECC error",
    109: "context switch time-out",
    110: "security fault",
    119: "time-out of a call to the GSP",
    120: "GSP error",
    121: "C2C link error",
    122: "SPI read failure",
    123: "SPI write failure",
    124: "SPI erase failure",
    125: "InfoROM file system failure",
    136: "link training failed",
    137: "NVLink privilege error",
    140: "unrecovered ECC error",
    143: "GPU initialisation failed",
    154: "recovery action changed",
    155: "NVLink error defined by software",
    156: "resource retired",
    157: "retirement of a resource failed",
    158: "fatal GPU time-out",
    160: "channel retired",
    161: "retirement of a channel failed",
    167: "fatal PCIe time-out",
    168: "memory capacity is reduced",
    171: "uncorrectable DRAM error",
    172: "uncorrectable SRAM error",
}


def describe_xid(xid: int) -> str:
    """A few words."""
    if 144 <= xid <= 150:
        return "NVLink hardware error"
    return _TEXTS.get(xid, UNKNOWN)
