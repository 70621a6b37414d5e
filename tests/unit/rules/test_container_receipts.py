"""Names and mounts of receipts."""

from pathlib import Path

from nodeagent.config.schema import Settings
from nodeagent.config.sections.cluster import SignalsSettings
from nodeagent.model.allocation import Allocation, PodIdentity
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.journal import Binding
from nodeagent.model.plugin import ContainerAnswer, ContainerMount
from nodeagent.rules.container_receipts import (
    add_receipt,
    list_mount_points,
    name_allocation_receipt,
    name_claim_receipt,
    name_fraction_receipt,
    plan_receipt_mount,
)

POD = PodIdentity(namespace="ml", name="train", uid="u")


def make_allocation(number: int, since_seconds: float) -> Allocation:
    devices = (DeviceId("GPU-1"),)
    return Allocation(
        number=number, resource=ResourceName("nvidia.com/gpu"), devices=devices, since_seconds=since_seconds
    )


def make_binding(cdi_name: str, since_seconds: float = 1.0) -> Binding:
    return Binding(
        number=7,
        reservations=(6,),
        pod=POD,
        container="main",
        parts=(),
        since_seconds=since_seconds,
        cdi_name=cdi_name,
    )


def test_no_two_containers_have_one_folder() -> None:
    """A lost journal counts from 1 again: the time tells its allocations from those before."""
    names = [
        name_allocation_receipt(make_allocation(1, 1000.0)),
        name_allocation_receipt(make_allocation(1, 1000.25)),
        name_allocation_receipt(make_allocation(2, 1000.0)),
        name_fraction_receipt(make_binding("nodeagent.io/part=p00ff")),
        name_fraction_receipt(make_binding("")),
        name_fraction_receipt(make_binding("", since_seconds=2.0)),
        name_claim_receipt("77aa"),
    ]
    assert len(set(names)) == len(names)
    assert names[3] == "p00ff"
    assert all("/" not in name and not name.startswith(".") for name in names)


def test_the_mount_is_read_only_and_of_the_folder() -> None:
    """A file that is replaced by a rename is seen through the mount of its folder alone."""
    mount = plan_receipt_mount("/state/receipts/a1")
    assert mount == ContainerMount(container_path="/run/nodeagent", host_path="/state/receipts/a1", read_only=True)


def test_an_answer_has_the_mount_where_the_settings_say_so() -> None:
    """Before the other mounts; off by default."""
    other = ContainerMount(container_path="/mps/pipe", host_path="/run/mps")
    answer, allocation = ContainerAnswer(mounts=(other,)), make_allocation(1, 1.0)
    assert add_receipt(answer, allocation, Settings()) is answer
    given = add_receipt(answer, allocation, Settings(signals=SignalsSettings(receipts=True)))
    folder = Path("/var/lib/nodeagent/receipts") / name_allocation_receipt(allocation)
    assert given.mounts == (plan_receipt_mount(str(folder)), other)


def test_mount_points_are_those_below_the_folder() -> None:
    """The limits of a fraction lie there; memory is mounted on a directory, a file on a file."""
    mounts = (
        ContainerMount(container_path="/run/nodeagent/vgpu/limits", host_path="/state/parts/p/limits"),
        ContainerMount(container_path="/run/nodeagent/vgpu/own", memory_bytes=1 << 20, read_only=False),
        ContainerMount(container_path="/run/nodeagents/other", host_path="/x"),
        ContainerMount(container_path="/etc/ld.so.preload", host_path="/state/vgpu/preload"),
    )
    assert list_mount_points(mounts) == (("vgpu/limits", False), ("vgpu/own", True))
