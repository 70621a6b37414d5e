"""Which resource the pod that validates a node asks for, and what its end means."""

import pytest

from nodeagent.components.driver.plan_workload import choose_resource, has_healthy, judge_late_pod, judge_pod
from nodeagent.model.cluster import ValidationPod
from nodeagent.model.driver import WorkloadResult
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.plugin import AdvertisedDevice, AdvertisedResource, PluginState


def offer(*names: str, registered: bool = True, empty: bool = False, healthy: bool = True) -> PluginState:
    devices = () if empty else (AdvertisedDevice(id=DeviceId("a"), healthy=healthy),)
    return PluginState(
        resources=tuple(
            AdvertisedResource(name=ResourceName(name), socket="s", registered=registered, devices=devices)
            for name in names
        )
    )


@pytest.mark.parametrize(
    ("plugin", "resource"),
    [
        (None, ""),
        (PluginState(), ""),
        (offer("nvidia.com/gpu", registered=False), ""),
        (offer("nvidia.com/gpu", empty=True), ""),
        (offer("nvidia.com/gpumem", "example.com/gpu"), ""),
        (offer("nvidia.com/mig-1g.10gb", "nvidia.com/gpu"), "nvidia.com/gpu"),
        (offer("nvidia.com/gpu.shared"), "nvidia.com/gpu.shared"),
        (offer("nvidia.com/mig-3g.20gb", "nvidia.com/mig-1g.10gb"), "nvidia.com/mig-1g.10gb"),
    ],
)
def test_a_whole_gpu_is_asked_for_where_the_node_offers_one(plugin: PluginState | None, resource: str) -> None:
    assert choose_resource(plugin) == resource


@pytest.mark.parametrize(
    ("plugin", "is_so"),
    [
        (None, False),
        (offer("nvidia.com/gpu", empty=True), False),
        (offer("nvidia.com/gpu", healthy=False), False),
        (offer("nvidia.com/mig-1g.10gb"), False),
        (offer("nvidia.com/gpu"), True),
    ],
)
def test_a_pod_needs_a_healthy_device_of_its_resource(plugin: PluginState | None, is_so: bool) -> None:
    assert has_healthy(plugin, "nvidia.com/gpu") is is_so


@pytest.mark.parametrize(
    ("pod", "result"),
    [
        (ValidationPod(phase="Pending", message="ContainerCreating"), None),
        (ValidationPod(phase="Running"), None),
        (ValidationPod(phase="Succeeded"), WorkloadResult(passed=True)),
        (
            ValidationPod(phase="Failed", reason="OutOfnvidia.com/gpu", message="0 free"),
            WorkloadResult(passed=False, is_busy=True, detail="OutOfnvidia.com/gpu: 0 free"),
        ),
        (
            ValidationPod(phase="Failed", message=" Error no GPU \n"),
            WorkloadResult(passed=False, detail="Error no GPU"),
        ),
        (ValidationPod(phase="Failed"), WorkloadResult(passed=False, detail="the container left no message")),
        (None, WorkloadResult(passed=False, detail="somebody deleted the pod before its end")),
    ],
)
def test_the_end_of_the_pod_is_the_result(pod: ValidationPod | None, result: WorkloadResult | None) -> None:
    """A full node shows nothing, and is told apart."""
    assert judge_pod(pod) == result


def test_a_pod_that_does_not_end_has_failed() -> None:
    """With what it waits for."""
    late = judge_late_pod(ValidationPod(phase="Pending", message="ImagePullBackOff"), 300)
    assert late == WorkloadResult(passed=False, detail="the pod has not ended within 300 s: Pending ImagePullBackOff")
    assert judge_late_pod(None, 10).detail.endswith("10 s: not seen")
