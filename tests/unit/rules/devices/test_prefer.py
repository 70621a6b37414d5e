"""Which devices serve a container best."""

from msgspec.structs import replace

from nodeagent.model.allocation import Allocation, PodIdentity
from nodeagent.model.devices import HostDevice, PciPlace
from nodeagent.model.ids import DeviceId, PciAddress, ResourceName
from nodeagent.rules.devices.answer import list_replicas, plan_list
from nodeagent.rules.devices.prefer import find_newcomers, narrow_gpus, prefer_devices, score_nearness

GPU = ResourceName("nvidia.com/gpu")


def device(number: int, numa: int | None = None, pci: str = "") -> HostDevice:
    return HostDevice(
        id=DeviceId(f"DEV-{number}"),
        name=f"/dev/x{number}",
        nodes=(f"/dev/x{number}",),
        numa_node=numa,
        pci=PciAddress(pci) if pci else None,
    )


def prefer(
    devices: list[HostDevice], size: int, must: tuple[str, ...] = (), replicas: int = 1, **keys: object
) -> list[str]:
    known = {str(each.id): each for each in devices}
    available = [name for each in reversed(devices) for name in list_replicas(each, replicas)]
    given: dict[str, object] = {"near": {}, **keys}
    return list(prefer_devices(known, available, [DeviceId(one) for one in must], size, **given))  # type: ignore[arg-type]


def test_what_is_near_comes_first_then_what_is_counted_first() -> None:
    """Nothing known of either: in the order in which people count."""
    three = [device(2), device(10), device(1)]
    assert prefer(three, 1) == ["DEV-1"]
    assert prefer(three, 2) == ["DEV-1", "DEV-2"]
    assert prefer(three, 1, near={"DEV-10": 3}) == ["DEV-10"]


def test_devices_of_one_numa_node_go_together() -> None:
    """Of the node that they fit best, that what must be included is at, or that is near."""
    five = [device(0, 0), device(1, 1), device(2, 1), device(3, 0), device(4, 0)]
    assert prefer(five, 2) == ["DEV-1", "DEV-2"]
    assert prefer(five, 3) == ["DEV-0", "DEV-3", "DEV-4"]
    assert prefer(five, 2, must=("DEV-3",)) == ["DEV-3", "DEV-0"]
    assert prefer(five, 2, near={"DEV-4": 1, "DEV-3": 1}) == ["DEV-3", "DEV-4"]
    assert prefer([device(0, 0), device(1)], 2) == ["DEV-0", "DEV-1"]


def test_partitions_of_one_gpu_go_together() -> None:
    """Of the GPU and the NUMA node that they fit best; GPUs without partitions are counted as ever."""
    gpus = ("0000:03:00.0", "0000:23:00.0", "0000:c3:00.0")

    def part(number: int, gpu: int, numa: int = 0, *, is_partition: bool = True) -> HostDevice:
        return replace(device(number, numa, gpus[gpu]), is_partition=is_partition)

    mixed = [part(0, 0), part(1, 1), part(2, 0), part(3, 1, is_partition=False), part(4, 0), part(5, 2, numa=1)]
    assert prefer(mixed, 2) == ["DEV-1", "DEV-3"]
    assert prefer(mixed, 3) == ["DEV-0", "DEV-2", "DEV-4"]
    assert prefer(mixed, 1) == ["DEV-5"]
    assert prefer(mixed, 2, must=("DEV-2",)) == ["DEV-2", "DEV-0"]
    assert prefer(mixed, 4) == ["DEV-0", "DEV-2", "DEV-4", "DEV-1"]
    whole = [device(0, 0, gpus[1]), device(1, 0, gpus[0])]
    assert prefer(whole, 1) == ["DEV-0"]


def test_shares_are_of_different_devices_the_freest_first() -> None:
    """And away from what somebody may hold."""
    two = [device(0), device(1)]
    assert prefer(two, 2, replicas=2) == ["DEV-0::0", "DEV-1::0"]
    known = {str(each.id): each for each in two}
    left = [DeviceId("DEV-0::1"), DeviceId("DEV-1::0"), DeviceId("DEV-1::1")]
    assert prefer_devices(known, left, [], 1, near={}) == ("DEV-1::0",)
    assert prefer(two, 1, avoid=["DEV-0"]) == ["DEV-1"]


def test_odd_questions_get_an_empty_answer_and_unknown_devices_come_last() -> None:
    """The kubelet then chooses by itself."""
    two = [device(0), device(1)]
    assert prefer(two, 3) == []
    assert prefer(two, 1, must=("DEV-0", "DEV-1")) == []
    assert prefer(two, 1, must=("DEV-9",)) == []
    known = {"DEV-1": device(1)}
    assert prefer_devices(known, [DeviceId("DEV-0"), DeviceId("DEV-1")], [], 2, near={}) == ("DEV-1", "DEV-0")


def test_nearness_is_what_two_functions_share_of_the_way_from_the_root() -> None:
    """The same NUMA node is worth something, and less than a step."""
    chain = ("pci0000:3a", "0000:3a:00.0")
    functions = {
        PciAddress("0000:3c:00.0"): PciPlace(vendor=1, pci_class=2, chain=(*chain, "0000:3c:00.0")),
        PciAddress("0000:5c:00.0"): PciPlace(vendor=1, pci_class=2, chain=("pci0000:5a", "0000:5c:00.0")),
        PciAddress("0000:3b:00.0"): PciPlace(vendor=0x10DE, pci_class=3, chain=(*chain, "0000:3b:00.0")),
    }
    devices = [device(0, 0, "0000:3c:00.0"), device(1, 0, "0000:5c:00.0"), device(2, 1), device(3, 0)]
    gpus = [(PciAddress("0000:3b:00.0"), 0)]
    assert score_nearness(devices, gpus, functions) == {"DEV-0": 5, "DEV-1": 1, "DEV-2": 0, "DEV-3": 1}
    assert score_nearness(devices[:1], [(PciAddress("0000:ff:00.0"), None)], functions) == {"DEV-0": 0}
    assert score_nearness(devices[:1], [(PciAddress("0000:3c:00.0"), None)], functions) == {"DEV-0": 6}


def test_newcomers_are_what_was_given_last_to_nobody_who_is_named_yet() -> None:
    """Back to where a resource comes again, a pod is known, or it was too long ago."""
    rdma, kvm, pod = ResourceName("a.com/rdma"), ResourceName("a.com/kvm"), PodIdentity(namespace="a", name="b")

    def give(number: int, resource: ResourceName, since: float = 10.0, pod: PodIdentity | None = None) -> Allocation:
        ids = (DeviceId(f"{resource}-{number}"),)
        return Allocation(number=number, resource=resource, devices=ids, since_seconds=since, pod=pod)

    def find(*table: Allocation, asked: ResourceName = rdma, now: float = 11.0) -> list[str]:
        return [name.rpartition("-")[2] for name in find_newcomers(table, asked, now, 5.0)]

    assert find(give(2, kvm), give(1, GPU)) == ["2", "1"]
    assert find(give(3, GPU), give(2, kvm), give(1, GPU)) == ["3", "2"]
    assert find(give(3, GPU), give(2, rdma), give(1, kvm)) == ["3"]
    assert find(give(2, kvm), give(1, GPU, pod=pod)) == ["2"]
    assert find(give(2, kvm, pod=pod), give(1, GPU)) == []
    assert find(give(1, GPU), now=16.0) == []
    assert find() == []


def test_gpus_are_narrowed_to_the_nearest_where_there_are_enough() -> None:
    """Shares count as their GPU; nothing is narrowed where something must be included, or nothing is near."""
    names = [DeviceId(name) for name in ("GPU-a::0", "GPU-a::1", "GPU-b::0", "GPU-c::0")]
    near = {"GPU-a": 5, "GPU-b": 1}
    assert narrow_gpus(names, [], 2, near) == names[:2]
    assert narrow_gpus(names, [], 3, near) == names
    assert narrow_gpus(names, names[2:3], 1, near) == names
    assert narrow_gpus(names, [], 1, {}) == names
    assert narrow_gpus(names, [], 1, {"GPU-x": 3}) == names
    assert narrow_gpus([], [], 0, near) == []


def test_what_somebody_holds_stays_in_the_list_unhealthy() -> None:
    """A share of a device that is not there any more."""
    listed = plan_list([device(0, 1)], 2, [DeviceId("DEV-0::0"), DeviceId("DEV-9")])
    assert [(each.id, each.healthy, each.numa_node) for each in listed] == [
        ("DEV-0::0", True, 1), ("DEV-0::1", True, 1), ("DEV-9", False, None)
    ]  # fmt: skip
    assert [each.id for each in plan_list([device(0)], 1)] == ["DEV-0"]


def test_a_device_that_somebody_has_whole_is_not_given_in_shares() -> None:
    """Nor the other way round: the configuration may change while pods run."""
    two = [device(0), device(1)]
    shared = plan_list(two, 2, [DeviceId("DEV-0")])
    assert [each.id for each in shared if each.healthy] == ["DEV-1::0", "DEV-1::1"]
    whole = plan_list(two, 1, [DeviceId("DEV-1::1")])
    assert [each.id for each in whole if each.healthy] == ["DEV-0"]
