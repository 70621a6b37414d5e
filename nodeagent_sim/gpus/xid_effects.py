"""The effects of an XID on the state of its GPU, as hardware and driver would show them afterwards.

Owns the table. An XID outside the table is an event alone: most such XIDs are a program's own fault.
"""

from msgspec import Struct

RECOVERY_NONE = 0
RECOVERY_RESET = 1
RECOVERY_REBOOT = 2
RECOVERY_DRAIN_AND_RESET = 4


class XidEffect(Struct, frozen=True):
    """Changes of the state; unnamed values stay."""

    recovery_action: int = RECOVERY_NONE
    corrected: int = 0
    uncorrected: int = 0
    remap_pending: bool = False
    remap_failed: bool = False
    link_down: bool = False
    lost: str = ""
    ends_jobs: bool = False


_ENDS_JOBS = XidEffect(ends_jobs=True)
_NEEDS_RESET = XidEffect(recovery_action=RECOVERY_RESET, ends_jobs=True)
_LINK_DOWN = XidEffect(recovery_action=RECOVERY_RESET, link_down=True, ends_jobs=True)

_UNCORRECTABLE = XidEffect(recovery_action=RECOVERY_RESET, uncorrected=1, remap_pending=True, ends_jobs=True)

XID_EFFECTS: dict[int, XidEffect] = {
    **dict.fromkeys((13, 31, 32, 43, 45, 69), _ENDS_JOBS),
    **dict.fromkeys((46, 62, 109, 110, 119, 120, 143, 158), _NEEDS_RESET),
    **dict.fromkeys((48, 95, 140, 171, 172), _UNCORRECTABLE),
    **dict.fromkeys((74, 136, 155), _LINK_DOWN),
    63: XidEffect(remap_pending=True),
    64: XidEffect(recovery_action=RECOVERY_RESET, remap_failed=True, ends_jobs=True),
    79: XidEffect(recovery_action=RECOVERY_REBOOT, lost="fell off the bus (XID 79)", ends_jobs=True),
    92: XidEffect(corrected=1000),
    94: XidEffect(recovery_action=RECOVERY_DRAIN_AND_RESET, uncorrected=1, remap_pending=True, ends_jobs=True),
    156: XidEffect(recovery_action=RECOVERY_DRAIN_AND_RESET, remap_pending=True),
}
"""By XID. 48 and the like are uncorrected memory errors, 74 and the like take a link down, 63 and 64 are row remaps."""
