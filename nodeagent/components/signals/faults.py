"""Faults that GPUs have now, for programs that repair or replace nodes: each fault of each GPU once. Pure.

The severity follows the verdict: a GPU out of service is critical, a GPU that needs attention is a warning. A fault
of a program leaves no verdict on the GPU, and repairers hear nothing of such a fault.
"""

from collections.abc import Collection
from typing import Final

from nodeagent.model.gpu import Gpu, StoredGpu
from nodeagent.model.health import DRIVER, NO_ANSWER, DeviceHealth, HealthReport, ReturnRule, Verdict
from nodeagent.model.values import Value
from nodeagent.rules.signals import Severity

_SEVERITIES: Final = {Verdict.UNHEALTHY: Severity.CRITICAL, Verdict.SUSPECT: Severity.WARN}
VANISHED: Final = "vanished"
_NO_FAULTS: Final = frozenset({DRIVER, NO_ANSWER})


class Fault(Value, frozen=True):
    """A fault of a GPU, or of a MIG device of the GPU."""

    gpu: str
    key: str
    """`xid-79`, `remap-failed`."""
    index: int
    address: str
    severity: Severity
    rule: ReturnRule
    reason: str
    """The worst that speaks against the GPU, in words."""
    since_seconds: float

    @property
    def message(self) -> str:
        """The fault in a sentence."""
        return f"GPU {self.index} {self.gpu} at {self.address} has {self.key}: {self.reason}"


class Faults(Value, frozen=True):
    """The faults, the worst first; the GPUs about which nothing is known now; and the number of all GPUs."""

    found: tuple[Fault, ...] = ()
    unknown: frozenset[str] = frozenset()
    gpus: int = 0


def list_faults(report: HealthReport, gpus: Collection[Gpu], vanished: Collection[StoredGpu]) -> Faults:
    """The faults of these GPUs, and of GPUs that the node has no more."""
    known = {gpu.uuid: gpu for gpu in gpus}
    found: dict[tuple[str, str], Fault] = {(each.uuid, VANISHED): _describe_vanished(each) for each in vanished}
    unknown = set[str]()
    for device in report.devices:
        gpu = known.get(device.gpu)
        if gpu is None:
            continue
        if device.verdict is Verdict.UNKNOWN or any(each.key in _NO_FAULTS for each in device.findings):
            unknown.add(gpu.uuid)
        for fault in _list_of_device(device, gpu):
            before = found.get((fault.gpu, fault.key))
            if before is None or _rank(fault) < _rank(before):
                found[fault.gpu, fault.key] = fault
    ranked = tuple(sorted(found.values(), key=_rank))
    return Faults(found=ranked, unknown=frozenset(unknown), gpus=len(known) + len(vanished))


def _list_of_device(device: DeviceHealth, gpu: Gpu) -> list[Fault]:
    return [
        Fault(
            gpu=gpu.uuid,
            key=each.key,
            index=gpu.index,
            address=gpu.pci.address,
            severity=_SEVERITIES[each.verdict],
            rule=each.rule,
            reason=device.reason,
            since_seconds=device.since_seconds,
        )
        for each in device.findings
        if each.verdict in _SEVERITIES and each.key not in _NO_FAULTS
    ]


def _describe_vanished(gpu: StoredGpu) -> Fault:
    return Fault(
        gpu=gpu.uuid,
        key=VANISHED,
        index=gpu.index,
        address=gpu.address,
        severity=Severity.CRITICAL,
        rule=ReturnRule.POWER_CYCLE,
        reason="the GPU is gone from its slot",
        since_seconds=gpu.gone_since_seconds or 0.0,
    )


def _rank(fault: Fault) -> tuple[bool, int, str]:
    return fault.severity is not Severity.CRITICAL, fault.index, fault.key


def name_key(key: str) -> str:
    """The key of a fault in CamelCase: `xid-79` is `Xid79`."""
    return "".join(word[:1].upper() + word[1:] for word in key.split("-"))
