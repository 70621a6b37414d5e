"""The node's policy for XIDs.

The policy is profile, rules by number and class, and two lists that the vendor's plugin reads from the environment.
The strongest comes first: enabled, disabled, rule by number, rule by class, profile.
Refuses levels: polled levels (memory, links, recovery action) hold whatever the policy for XIDs.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from nodeagent.components.health.evidence.xids import DAY, XidEntry
from nodeagent.config.sections.hardware import HealthSettings
from nodeagent.model.health import ReturnRule, Verdict
from nodeagent.model.remedies import Remedy

PLUGIN_IGNORES: Final = frozenset({13, 31, 43, 45, 68, 109})
"""XIDs that the vendor's device plugin takes for faults of applications."""
_NEVER_ACT: Final = frozenset({14, 106, 107, 154, 162})
"""Injected numbers, test messages, and changes whose value is read as a level: no fault is in them."""
_ALL: Final = frozenset({"all", "xids", "0"})
_VERDICTS: Final = {"ignore": Verdict.HEALTHY, "suspect": Verdict.SUSPECT, "unhealthy": Verdict.UNHEALTHY}


def apply_policy(entry: XidEntry, settings: HealthSettings) -> XidEntry:
    """The catalogue's entry under the policy of the settings."""
    if entry.number in _NEVER_ACT:
        return entry
    verdict = _find_verdict(entry, settings)
    return entry if verdict is None else _with_verdict(entry, verdict)


def _find_verdict(entry: XidEntry, settings: HealthSettings) -> Verdict | None:
    """The configured verdict; `None` where the catalogue's own stands."""
    if _is_listed(entry.number, settings.enable_xids):
        return Verdict.UNHEALTHY
    if _is_listed(entry.number, settings.disable_xids):
        return Verdict.HEALTHY
    for name in (str(entry.number), entry.xid_class.value):
        if name in settings.xid_policy:
            return _VERDICTS[settings.xid_policy[name]]
    if settings.profile == "plugin":
        return Verdict.HEALTHY if entry.number in PLUGIN_IGNORES else Verdict.UNHEALTHY
    return None


def _is_listed(number: int, names: Sequence[str]) -> bool:
    return any(name in _ALL or int(name) == number for name in names)


def _with_verdict(entry: XidEntry, verdict: Verdict) -> XidEntry:
    """The entry with another verdict, and a way back where the catalogue has none."""
    if verdict is Verdict.HEALTHY:
        return replace(entry, verdict=verdict, rule=ReturnRule.NEVER_LEFT, repeat=None)
    if entry.rule is not ReturnRule.NEVER_LEFT:
        return replace(entry, verdict=verdict)
    is_programs_own = entry.remedy is Remedy.RESTART_APPLICATION
    rule = ReturnRule.PROCESS_GONE if is_programs_own else ReturnRule.LEVELS_CLEAN
    return replace(entry, verdict=verdict, rule=rule, quiet_seconds=entry.quiet_seconds or DAY)
