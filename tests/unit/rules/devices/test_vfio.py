"""IOMMU groups as devices.

The rule that a group is given whole is the kernel's (Documentation/driver-api/vfio.rst); the nodes are those
that KubeVirt and AMD's device plugin give for PCI functions.
"""

from typing import Any

from nodeagent.model.devices import HostDevices, PciPlace
from nodeagent.model.ids import ResourceName
from nodeagent.rules.devices.group import Grouped, list_extra_nodes, list_missing_extras, parse_id, plan_classes
from tests.support.devices import make_class, make_host

THING = ResourceName("example.com/thing")


def function(driver: str, group: str = "42", vendor: int = 0x10DE, numa: int | None = 1) -> PciPlace:
    return PciPlace(vendor=vendor, pci_class=0x030000, driver=driver, iommu_group=group, numa_node=numa)


def plan(host: HostDevices, **keys: Any) -> Grouped:
    return plan_classes([make_class(vfio=True, **keys)], host)[THING]


def test_a_group_is_a_device_with_all_its_functions() -> None:
    """A GPU and its sound; a bridge, and a function without driver, take nothing away."""
    host = make_host(
        "/dev/vfio/42",
        "/dev/vfio/7",
        "/dev/vfio/vfio",
        f0000_3b_00_0=function("vfio-pci"),
        f0000_3b_00_1=function("vfio-pci", vendor=0x8086),
        f0000_3a_00_0=function("pcieport", vendor=0x8086),
        f0000_3b_00_2=function(""),
        f0000_5e_00_2=function("mlx5_vfio_pci", group="7", vendor=0x15B3),
        f0000_af_00_0=function("nvidia", group="8"),
    )
    grouped = plan(host, pci_vendor="0x10de")
    (device,) = grouped.devices
    assert device.nodes == ("/dev/vfio/42",)
    assert device.pci_addresses == ("0000:3b:00.0", "0000:3b:00.1")
    assert (device.pci, device.numa_node, device.sysfs) == ("0000:3b:00.0", 1, "bus/pci/devices/0000:3b:00.0")
    assert parse_id(device.id, THING) == "0000:3b:00.0"
    assert grouped.problems == ()
    assert [each.name for each in plan(host).devices] == ["/dev/vfio/42", "/dev/vfio/7"]
    assert [each.name for each in plan(host, pci_addresses=["0000:5e:00.*"]).devices] == ["/dev/vfio/7"]
    assert [each.name for each in plan(host, pci_drivers=["mlx5_vfio_pci"]).devices] == ["/dev/vfio/7"]


def test_a_group_that_another_driver_has_a_part_of_is_not_given() -> None:
    """The kernel would refuse the group to whoever opens it."""
    host = make_host(
        "/dev/vfio/42", f0000_3b_00_0=function("vfio-pci"), f0000_3b_00_1=function("snd_hda_intel", vendor=0x8086)
    )
    grouped = plan(host, pci_vendor="0x10de")
    assert grouped.devices == ()
    (problem,) = grouped.problems
    assert problem == (
        "/dev/vfio/42 is not given, for in its IOMMU group are bound 0000:3b:00.1 to snd_hda_intel;"
        " bind all to vfio-pci"
    )


def test_a_function_without_group_or_node_is_told_of() -> None:
    """No IOMMU, or a kernel without the nodes of groups."""
    host = make_host(f0000_3b_00_0=function("vfio-pci", group=""), f0000_5e_00_0=function("vfio-pci", group="9"))
    assert plan(host).problems == (
        "0000:3b:00.0 is in no IOMMU group; switch the IOMMU on",
        "0000:5e:00.0 is bound to vfio-pci, and /dev/vfio/9 is not there",
    )


def test_a_group_stays_with_the_class_that_comes_first() -> None:
    host = make_host("/dev/vfio/42", f0000_3b_00_0=function("vfio-pci"))
    classes = [make_class("a.com/one", vfio=True, pci_vendor="0x10de"), make_class("a.com/two", vfio=True)]
    found = plan_classes(classes, host)
    assert len(found[ResourceName("a.com/one")].devices) == 1
    assert found[ResourceName("a.com/two")] == ((), (
        "/dev/vfio/42 is of a.com/one and of a.com/two: it stays with a.com/one; narrow one of them",
    ))  # fmt: skip


def test_the_container_of_vfio_comes_with_every_group() -> None:
    one = make_class(vfio=True)
    assert list_extra_nodes(one, make_host("/dev/vfio/42", "/dev/vfio/vfio")) == ("/dev/vfio/vfio",)
    assert list_missing_extras(one, make_host(missing=("/dev/vfio/vfio",))) == ("/dev/vfio/vfio",)
