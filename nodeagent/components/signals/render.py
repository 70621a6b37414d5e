"""The event on a pod for a fault, in the form that Flyte trusts and parses, and people read.

Owns the words: a sentence for people, then keys and values for programs.
Refuses what is another pod's: the driver names the faulting process, which may be a neighbour's on the same GPU.
"""

import re

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.cluster import NodeEvent
from nodeagent.model.events import GpuFaultReported
from nodeagent.rules.signals.severity import Severity

XID_REASON, SXID_REASON = "GPUXidError", "GPUSXidError"
_PREFIX = "[gpu-health]"
_SEPARATOR = re.compile(r"[\s=]")


def render_fault(fault: GpuFaultReported, severity: Severity, pod: PodIdentity, node: str) -> NodeEvent:
    """The event of a fault on a pod."""
    if fault.gpu:
        sentence = f"Xid {fault.number} ({fault.name}) on GPU {fault.index} {fault.gpu}."
        tail = {"xid": fault.number, "severity": severity, "gpu_uuid": fault.gpu, "gpu_index": fault.index}
    else:
        sentence = f"SXid {fault.number} on NVSwitch {fault.address}."
        tail = {"sxid": fault.number, "severity": severity}
    values = tail | {"pci": fault.address, "node": node}
    keys = " ".join(f"{key}={_clean(str(value))}" for key, value in values.items())
    return NodeEvent(
        reason=XID_REASON if fault.gpu else SXID_REASON,
        note=f"{_PREFIX} [{severity.upper()}] {sentence} {keys}",
        about=f"{fault.number} {fault.gpu or fault.address}",
        pod=pod,
    )


def _clean(value: str) -> str:
    """The value without what separates keys and values."""
    return _SEPARATOR.sub("_", value)
