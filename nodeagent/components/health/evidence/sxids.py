"""The meaning of NVSwitch error numbers for the GPUs behind the switch.

Owns the groups. Refuses to name single GPUs: the way from port to GPU is unknown here, so all GPUs with NVLink are
meant until their own links and recovery actions say more.
"""

from collections.abc import Sequence
from typing import Final

from nodeagent.components.health.evidence.xids import HOUR
from nodeagent.config.sections.health_limits import HealthLimits
from nodeagent.model.health import ReturnRule, Verdict
from nodeagent.model.remedies import Remedy
from nodeagent.model.values import Value


class SwitchReading(Value, frozen=True):
    """The effect of a switch error on GPUs with NVLink."""

    verdict: Verdict
    rule: ReturnRule
    remedy: Remedy
    meaning: str
    quiet_seconds: float = 0.0


_NOTE = SwitchReading(
    verdict=Verdict.HEALTHY,
    rule=ReturnRule.NEVER_LEFT,
    remedy=Remedy.NOTHING,
    meaning="a corrected or passing error of the switch",
)
_STALLED = SwitchReading(
    verdict=Verdict.SUSPECT,
    rule=ReturnRule.LEVELS_CLEAN,
    remedy=Remedy.CHECK_LINKS,
    meaning="the switch's configuration or host side is disturbed, traffic may stall",
)
_LINK_LOST = SwitchReading(
    verdict=Verdict.SUSPECT,
    rule=ReturnRule.RESET,
    remedy=Remedy.RESET_GPU,
    meaning="a link of the switch failed, the GPU behind it reports the rest itself",
)
_SWITCH_LOST = SwitchReading(
    verdict=Verdict.UNHEALTHY,
    rule=ReturnRule.POWER_CYCLE,
    remedy=Remedy.REBOOT_NODE,
    meaning="the whole switch failed",
)

PASSING: Final = frozenset({20001, 20009, 20012, 22013})
"""Links that repeat, receive badly or break for a moment: harmless one by one, a bad link when there are many."""
PASSING_KEPT: Final = 1024

_CORRECTED: Final = frozenset(
    {
        *(11012, *range(11021, 11024), 12021, 12023, 15008, 15011, 19049, 19055, 19057, 19059, 19062, 19065, 19068),
        *(19071, *range(24001, 24004), 10005, *PASSING),
    }
)
_CONFIGURATION: Final = frozenset({11004, 12028, 19084, *range(10001, 10005)})
_ONE_LINK: Final = frozenset(
    {
        *(11001, 11009, 11013, *range(11018, 11021), 12001, 12002, 12022, *range(12024, 12028), *range(12030, 12033)),
        *(14017, 15001, 15006, 15009, 15010, 15012, 15013, 19047, 19048, 19054, 19056, 19058, 19060, 19061, 19063),
        *(19064, 19066, 19067, 19069, 19070, 20034, 22012, *range(24004, 24008)),
    }
)
_WHOLE_SWITCH: Final = frozenset({12020, 22003, 22011, *range(23001, 23018)})
_TABLE: Final[dict[int, SwitchReading]] = {
    **dict.fromkeys(_CORRECTED, _NOTE),
    **dict.fromkeys(_CONFIGURATION, _STALLED),
    **dict.fromkeys(_ONE_LINK, _LINK_LOST),
    **dict.fromkeys(_WHOLE_SWITCH, _SWITCH_LOST),
}


def judge_passing(times: Sequence[float], at: float, limits: HealthLimits) -> SwitchReading | None:
    """The effect of many passing errors within an hour; `None` below the limit."""
    count = sum(1 for time in times if at - time < HOUR)
    if count <= limits.switch_errors_per_hour:
        return None
    return SwitchReading(
        verdict=Verdict.SUSPECT,
        rule=ReturnRule.QUIET_PERIOD,
        remedy=Remedy.CHECK_LINKS,
        meaning=f"{count} link errors of the switches within an hour",
        quiet_seconds=HOUR,
    )


def read_sxid(number: int, *, is_fatal: bool) -> SwitchReading:
    """The effect of an SXID; an unknown number is judged by the severity in the line."""
    return _TABLE.get(number, _LINK_LOST if is_fatal else _NOTE)
