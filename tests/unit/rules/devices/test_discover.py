"""Which classes a host could have."""

from msgspec.structs import replace

from nodeagent.cli.node.devices import read_ready
from nodeagent.config.sections.devices_ready import READY
from nodeagent.model.devices import PciPlace
from nodeagent.rules.devices.discover import propose
from tests.support.devices import make_host, make_node

ALL = tuple(read_ready(name) for name in READY)


def test_ready_made_classes_find_what_they_are_for() -> None:
    host = make_host(
        "/dev/kvm",
        "/dev/fuse",
        "/dev/net/tun",
        make_node("/dev/video0", hardware="devices/usb1/1-1", sysfs_class="video4linux"),
        make_node("/dev/video1", hardware="devices/usb1/1-1", sysfs_class="video4linux"),
        make_node("/dev/infiniband/uverbs0", pci="0000:3b:00.0"),
        make_node("/dev/infiniband/umad0", pci="0000:3b:00.0"),
        "/dev/infiniband/rdma_cm",
        make_node("/dev/dri/renderD128", pci="0000:00:02.0"),
        make_node("/dev/dri/card0", pci="0000:00:02.0"),
        make_node("/dev/dri/renderD130", pci="0000:5e:00.0"),
        make_node("/dev/accel/accel0", pci="0000:00:0b.0"),
        make_node("/dev/dri/renderD129", pci="0000:03:00.0"),
        "/dev/kfd",
        "/dev/davinci0",
        "/dev/iluvatar0",
        "/dev/iluvatar1",
        f0000_3b_00_0=PciPlace(vendor=0x15B3, pci_class=0x020700),
        f0000_00_02_0=PciPlace(vendor=0x8086, pci_class=0x030000, driver="i915"),
        f0000_5e_00_0=PciPlace(vendor=0x8086, pci_class=0x030000, driver="xe"),
        f0000_00_0b_0=PciPlace(vendor=0x8086, pci_class=0x120000, driver="intel_vpu"),
        f0000_03_00_0=PciPlace(vendor=0x1002, pci_class=0x120000),
    )
    found = {each.use: each for each in propose(ALL, host)}
    assert found.keys() == READY.keys()
    assert {use: len(each.devices) for use, each in found.items()} == dict.fromkeys(READY, 1) | {"iluvatar": 2}
    assert found["kvm"].lines == ("- use: kvm",)
    assert all(each.resource for each in found.values())


def test_an_accelerator_of_no_class_is_written_out_and_nvidias_are_not() -> None:
    """By vendor and class of its function; what is no accelerator is left alone."""
    host = make_host(
        make_node("/dev/accel/accel0", pci="0000:01:00.0"),
        make_node("/dev/nvidia0", pci="0000:02:00.0"),
        make_node("/dev/nvme0", pci="0000:03:00.0"),
        "/dev/null",
        f0000_01_00_0=PciPlace(vendor=0x1DA3, pci_class=0x120000),
        f0000_02_00_0=PciPlace(vendor=0x10DE, pci_class=0x030200),
        f0000_03_00_0=PciPlace(vendor=0x144D, pci_class=0x010802),
    )
    (one,) = propose(ALL, host)
    assert (one.use, one.devices) == ("", ("/dev/accel/accel0",))
    assert one.lines == (
        "- resource: devices.nodeagent.io/pci-1da3",
        '  pci_vendor: "0x1da3"',
        '  pci_class: "0x1200"',
        "  group: device",
    )


def test_a_host_without_any_gets_no_proposal() -> None:
    """Silence, not a guess."""
    assert propose(ALL, make_host()) == ()


def test_partitions_of_a_gpu_are_told_of() -> None:
    """A GPU in one piece is not."""
    whole = PciPlace(vendor=0x1002, pci_class=0x120000, partition="spx_nps1")
    host = make_host(
        make_node("/dev/dri/renderD128", pci="0000:03:00.0"),
        make_node("/dev/dri/renderD129", pci="0000:03:00.0", hardware="devices/platform/amdgpu_xcp_1"),
        make_node("/dev/dri/renderD136", pci="0000:23:00.0"),
        f0000_03_00_0=replace(whole, partition="cpx_nps4"),
        f0000_23_00_0=whole,
    )
    (one,) = propose(ALL, host)
    assert one.devices == ("/dev/dri/renderD128", "/dev/dri/renderD129", "/dev/dri/renderD136")
    assert one.note == "partitioned as cpx_nps4; with `amd_partitions` each kind can have a resource of its own"


def test_groups_bound_to_vfio_are_proposed_by_device_id() -> None:
    """A group that cannot be given is not."""
    gpu = PciPlace(vendor=0x10DE, pci_class=0x030200, device=0x2330, driver="vfio-pci", iommu_group="42")
    host = make_host(
        "/dev/vfio/42",
        "/dev/vfio/43",
        "/dev/vfio/44",
        f0000_03_00_0=gpu,
        f0000_23_00_0=replace(gpu, iommu_group="43"),
        f0000_5e_00_0=replace(gpu, iommu_group="44"),
        f0000_5e_00_1=replace(gpu, iommu_group="44", driver="nvidia"),
    )
    (one,) = propose(ALL, host)
    assert one.devices == ("/dev/vfio/42", "/dev/vfio/43")
    assert one.lines == (
        "- resource: devices.nodeagent.io/vfio-10de-2330",
        "  vfio: true",
        '  pci_vendor: "0x10de"',
        '  pci_devices: ["0x2330"]',
    )
