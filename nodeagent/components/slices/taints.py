"""The taints of a device: health findings, a cordon, a waiting allocation mode, a changing MIG layout.

Owns keys and effects. Each finding of health has a taint of its own, so that a claim can tolerate a single finding; the
rules of the settings decide the effect, and without a fitting rule an unfit device gets no new pods.
"""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Final

from nodeagent.config.sections.claims import TaintRule
from nodeagent.model.health import DeviceHealth, FoundFault, HealthReport, Verdict
from nodeagent.model.mig import MigState
from nodeagent.model.offering import AllocationMode, Offering
from nodeagent.model.slices import DeviceTaint, TaintEffect
from nodeagent.rules.claims.naming import NamedDevice

CLOSED: Final = "closed"
CORDONED: Final = "cordoned"
CHANGING: Final = "changing"
_NOT_JUDGED: Final = FoundFault(key="no-verdict", verdict=Verdict.UNKNOWN)
_RANK: Final[dict[TaintEffect, int]] = {"NoExecute": 0, "NoSchedule": 1, "None": 2}


def decide_taints(
    device: NamedDevice, health: HealthReport, driver: str, rules: Sequence[TaintRule]
) -> tuple[DeviceTaint, ...]:
    """The taints of the device's health findings, the worst first."""
    judged = health.find_device(device.mig.uuid) if device.mig is not None else None
    # A new MIG device has no verdict of its own yet; the GPU's verdict is all there is.
    judged = judged or health.find_device(device.gpu.uuid)
    taints = [
        DeviceTaint(key=f"{driver}/{each.key}", value=each.verdict.value, effect=_decide_effect(each, rules))
        for each in _list_findings(judged)
    ]
    return tuple(sorted(taints, key=lambda one: (_RANK[one.effect], one.key)))


def _list_findings(judged: DeviceHealth | None) -> Iterator[FoundFault]:
    if judged is None:
        yield _NOT_JUDGED
    elif judged.findings or judged.verdict is Verdict.HEALTHY:
        yield from judged.findings
    else:
        yield FoundFault(key=judged.verdict.value, verdict=judged.verdict)


def _decide_effect(finding: FoundFault, rules: Sequence[TaintRule]) -> TaintEffect:
    for rule in rules:
        if fnmatchcase(finding.key, rule.finding) or rule.finding == finding.verdict.value:
            return rule.effect
    return "None" if finding.verdict in (Verdict.HEALTHY, Verdict.SUSPECT) else "NoSchedule"


def explain_closed(
    device: NamedDevice, driver: str, offering: Offering, *, mig: MigState | None
) -> tuple[DeviceTaint, ...]:
    """The taints besides health: a cordon, a mode that waits for present holders, a MIG layout that changes."""
    taints = []
    is_spared = device.gpu.uuid in offering.list_trials() and not _is_first(device)
    if is_spared or device.gpu.uuid in offering.list_cordoned():
        taints.append(DeviceTaint(key=f"{driver}/{CORDONED}", value="", effect="NoSchedule"))
    if device.gpu.uuid in offering.list_elsewhere([device.gpu], AllocationMode.CLAIMS):
        taints.append(DeviceTaint(key=f"{driver}/{CLOSED}", value="", effect="NoSchedule"))
    uuid = device.mig.uuid if device.mig is not None else device.gpu.uuid
    if mig is not None and mig.explain_hidden(device.gpu.uuid, uuid):
        taints.append(DeviceTaint(key=f"{driver}/{CHANGING}", value="", effect="NoSchedule"))
    return tuple(taints)


def _is_first(device: NamedDevice) -> bool:
    """Whether the device is the one of its GPU that a pod may take to prove the GPU."""
    cut = device.gpu.mig_devices
    return device.mig is not None and device.mig.uuid == cut[0].uuid if cut else device.is_gpu
