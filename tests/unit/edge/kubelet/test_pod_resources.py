"""The kubelet's account of one pod, brought into one form."""

from nodeagent.edge.kubelet.pod_resources import parse_claims, parse_pod
from nodeagent.edge.kubelet.proto import pod_resources_pb2 as wire


def entry(resource: str, *devices: str) -> wire.ContainerDevices:
    return wire.ContainerDevices(resource_name=resource, device_ids=devices)


def test_each_device_is_told_once() -> None:
    """Entries are grouped by container and resource; a device on two NUMA nodes stands once; all in order."""
    pod = wire.PodResources(
        name="train",
        namespace="ml",
        containers=[
            wire.ContainerResources(
                name="main",
                devices=[entry("a/gpu", "G2"), entry("a/gpu", "G1"), entry("a/gpu", "G2"), entry("b/x", "X")],
            ),
            wire.ContainerResources(name="sidecar", devices=[entry("a/gpu", "G3")]),
            wire.ContainerResources(name="nothing"),
        ],
    )
    found = [(held.container, held.resource, held.devices) for held in parse_pod(pod)]
    assert found == [("main", "a/gpu", ("G1", "G2")), ("main", "b/x", ("X",)), ("sidecar", "a/gpu", ("G3",))]
    assert {(held.pod.namespace, held.pod.name) for held in parse_pod(pod)} == {("ml", "train")}


def test_claims_are_told_device_by_device() -> None:
    """A claim of dynamic allocation names driver, pool and device; the same device twice is one."""

    def resource(device: str) -> wire.ClaimResource:
        return wire.ClaimResource(driver_name="gpu.nvidia.com", pool_name="node-1", device_name=device)

    claim = wire.DynamicResource(
        claim_name="c", claim_namespace="ml", claim_resources=[resource("gpu-1"), resource("gpu-0"), resource("gpu-0")]
    )
    pod = wire.PodResources(
        name="train",
        namespace="ml",
        containers=[wire.ContainerResources(name="main", dynamic_resources=[claim]), wire.ContainerResources(name="b")],
    )
    found = parse_claims(pod)
    assert [(held.container, held.claim, held.driver, held.pool, held.device) for held in found] == [
        ("main", "c", "gpu.nvidia.com", "node-1", "gpu-0"),
        ("main", "c", "gpu.nvidia.com", "node-1", "gpu-1"),
    ]
    assert parse_pod(pod) == ()
