"""The findings of a poll for repairs: which GPUs have faults that a repair can mend, and which are known to have none.

Faults of a switch hit several GPUs at once and make one case of them all.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import DeviceHealth, HealthReport, Verdict
from nodeagent.model.ids import GpuUuid
from nodeagent.model.repairs import Evidence
from nodeagent.model.values import Value
from nodeagent.rules.repair.ladder import find_entry

SWITCH: Final = "sxid-"
"""The beginning of the keys of faults of an NVSwitch."""
_READY: Final = frozenset({DriverPhase.READY, DriverPhase.NODES_MISSING})
_SILENT: Final = frozenset({"driver", "no-answer"})
"""Keys that say that nothing is known of the GPU itself."""


class Findings(Value, frozen=True):
    """The evidence of a poll, by GPU."""

    evidence: tuple[Evidence, ...] = ()
    answered: frozenset[GpuUuid] = frozenset()
    """GPUs of which the absence of evidence says that they are well."""
    blind: str = ""
    """Why the poll says nothing of some GPU; empty for a complete poll."""

    @property
    def summary(self) -> frozenset[tuple[GpuUuid, str]]:
        """What two polls must agree on to be equal."""
        return frozenset((one.gpu, one.key) for one in self.evidence)


def read_findings(
    report: HealthReport | None,
    inventory: Inventory | None,
    driver: DriverState | None,
    actions: Mapping[GpuUuid, int | None],
) -> Findings:
    """The findings of the newest verdicts; `actions` has the driver's recovery action of each GPU."""
    if report is None or inventory is None or driver is None:
        return Findings(blind="driver, GPUs and verdicts are not all known yet")
    known = {one.gpu for one in report.devices}
    silent = {one.gpu for one in report.devices if _is_silent(one)}
    missed = [gpu.index for gpu in inventory.gpus if gpu.uuid in silent or gpu.uuid not in known]
    blind = f"no verdict on GPU {', '.join(map(str, missed))}" if missed else ""
    if driver.phase not in _READY:
        blind = f"the driver is not ready: {driver.detail or driver.phase}"
    found: dict[tuple[GpuUuid, str], Evidence] = {}
    for device in report.devices:
        for fault in device.findings:
            rung, before = find_entry(fault, actions.get(device.gpu)), found.get((device.gpu, fault.key))
            if rung is not None and (before is None or rung.rank > before.rung.rank):
                found[device.gpu, fault.key] = Evidence(
                    gpu=device.gpu,
                    key=fault.key,
                    rung=rung,
                    seen_seconds=fault.seen_seconds,
                    is_present=fault.is_present,
                )
    return Findings(
        evidence=tuple(found.values()),
        answered=frozenset() if driver.phase not in _READY else frozenset(known - silent),
        blind=blind,
    )


def _is_silent(device: DeviceHealth) -> bool:
    return device.verdict is Verdict.UNKNOWN or any(finding.key in _SILENT for finding in device.findings)


def group_evidence(evidence: Iterable[Evidence], together: Iterable[frozenset[GpuUuid]]) -> list[frozenset[GpuUuid]]:
    """GPUs with evidence, in groups that are repaired as one: by a switch's fault, or because a session has them."""
    by_switch: dict[str, set[GpuUuid]] = {}
    groups: list[frozenset[GpuUuid]] = []
    for one in evidence:
        if one.key.startswith(SWITCH):
            by_switch.setdefault(one.key, set()).add(one.gpu)
        else:
            groups.append(frozenset({one.gpu}))
    return _join([*groups, *map(frozenset, by_switch.values())], list(together))


def _join(groups: list[frozenset[GpuUuid]], together: list[frozenset[GpuUuid]]) -> list[frozenset[GpuUuid]]:
    """The groups with all that overlap made one; `together` joins groups and makes none by itself."""
    joined: list[frozenset[GpuUuid]] = []
    for group in groups:
        whole, before = group, frozenset[GpuUuid]()
        while whole != before:
            before, touching = whole, [each for each in (*joined, *together) if each & whole]
            whole = whole.union(*touching)
        joined = [*(each for each in joined if not each & whole), whole]
    return joined
