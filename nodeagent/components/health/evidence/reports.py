"""The driver's reports other than XIDs, as levels that are bad until a poll finds them good."""

from collections.abc import Callable
from typing import Final

from nodeagent.components.health.evidence.findings import Finding, suspect, unhealthy
from nodeagent.components.health.evidence.levels import judge_recovery_action
from nodeagent.components.health.evidence.xids import DAY
from nodeagent.model.health import ReturnRule
from nodeagent.model.proof import PROOF_FAILED
from nodeagent.model.remedies import Remedy

LOOK_AT_ONCE: Final = frozenset({"watch_resumed", "double_bit_ecc", "recovery_action", "gpu_back", "gpu_reset", "bind"})
"""After these the levels tell more than the event."""


def judge_report(kind: str, data: int) -> Finding | None:
    """The bad level of a report; `None` for a report about no level or a good level."""
    if kind == "recovery_action":
        return judge_recovery_action(data)
    build = _FINDINGS.get(kind)
    return build() if build is not None else None


def _lost() -> Finding:
    return unhealthy("lost", "the GPU cannot be reached", Remedy.POWER_CYCLE, ReturnRule.POWER_CYCLE)


def _storm() -> Finding:
    reason = "the driver reports a storm of corrected memory errors"
    return suspect("ecc-storm", reason, Remedy.WATCH, ReturnRule.QUIET_PERIOD, DAY)


def _retired() -> Finding:
    return suspect("dram-retired", "the driver retired memory", Remedy.DRAIN_AND_RESET, ReturnRule.RESET)


def _retirement_failed() -> Finding:
    return unhealthy("dram-retirement-failed", "the driver could not retire memory", Remedy.RESET_GPU, ReturnRule.RESET)


def _poison() -> Finding:
    return suspect("poison", "damaged data was found and contained", Remedy.RESTART_APPLICATION, ReturnRule.RESET)


def _fatal_poison() -> Finding:
    return unhealthy("poison", "damaged data was found and not contained", Remedy.RESET_GPU, ReturnRule.RESET)


def _proof_failed() -> Finding:
    reason = "a proof found that the GPU works wrongly"
    return unhealthy("proof-failed", reason, Remedy.RESET_GPU, ReturnRule.RESET)


_FINDINGS: Final[dict[str, Callable[[], Finding]]] = {
    "gpu_lost": _lost,
    "unavailable": _lost,
    "single_bit_ecc_storm": _storm,
    "dram_retirement": _retired,
    "dram_retirement_failure": _retirement_failed,
    "non_fatal_poison": _poison,
    "fatal_poison": _fatal_poison,
    PROOF_FAILED: _proof_failed,
}
