"""The kubelet's account of one pod, brought into one form."""

from nodeagent.edge.kubelet.pod_resources import parse_pod
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
