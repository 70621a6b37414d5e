"""The validation of a node by a pod with a GPU: the resource for which the pod asks, and what the pod's end means."""

from typing import Final

from nodeagent.model.cluster import ValidationPod
from nodeagent.model.driver import WorkloadResult
from nodeagent.model.nvidia import GPU_RESOURCE, MIG_RESOURCES
from nodeagent.model.plugin import PluginState

_NO_ROOM: Final = "OutOf"
"""The kubelet's reason, with the resource behind it, for a pod on a node whose resource is all given out."""
_NO_WORD: Final = "the container left no message"


def choose_resource(plugin: PluginState | None) -> str:
    """The resource for the pod: whole GPUs where the node offers some, else MIG devices; empty for none."""
    if plugin is None:
        return ""
    offered = [str(each.name) for each in plugin.resources if each.registered and each.devices]
    whole = [name for name in offered if name == GPU_RESOURCE or name.startswith(f"{GPU_RESOURCE}.")]
    cut = [name for name in offered if name.startswith(MIG_RESOURCES)]
    return next(iter((*sorted(whole), *sorted(cut))), "")


def has_healthy(plugin: PluginState | None, resource: str) -> bool:
    """Whether the kubelet has a healthy device of the resource: without one every pod is refused."""
    resources = plugin.resources if plugin is not None else ()
    return any(device.healthy for each in resources if each.name == resource for device in each.devices)


def judge_pod(pod: ValidationPod | None) -> WorkloadResult | None:
    """The verdict by the pod; `None` while the pod is on the way."""
    if pod is None:
        return WorkloadResult(passed=False, detail="somebody deleted the pod before its end")
    if pod.phase == "Succeeded":
        return WorkloadResult(passed=True)
    if pod.phase != "Failed":
        return None
    detail = pod.message.strip() or _NO_WORD
    return WorkloadResult(
        passed=False,
        is_busy=pod.reason.startswith(_NO_ROOM),
        detail=f"{pod.reason}: {detail}" if pod.reason else detail,
    )


def judge_late_pod(pod: ValidationPod | None, limit_seconds: float) -> WorkloadResult:
    """The verdict by a pod that has not ended in time."""
    seen = f"{pod.phase} {pod.message}".strip() if pod is not None else "not seen"
    return WorkloadResult(passed=False, detail=f"the pod has not ended within {limit_seconds:g} s: {seen}")
