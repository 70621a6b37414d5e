"""Which names there are and which nodes they stand for."""

import pytest
from msgspec.structs import replace

from nodeagent.components.cdi.plan_devices import (
    DevicePlan,
    plan_channel_devices,
    plan_gpu_devices,
    plan_node_edits,
)
from nodeagent.model.gpu import Gpu, Inventory
from nodeagent.model.ids import PciAddress
from tests.support.files.driver_files import make_capabilities, make_files, make_node
from tests.support.samples import make_gpu, make_inventory, make_mig, make_uuid


def read_nodes(plan: DevicePlan) -> dict[str, list[str]]:
    return {device.name: [node.path for node in device.container_edits.device_nodes] for device in plan.devices}


def make_partitioned(count: int = 2) -> Inventory:
    return Inventory(generation=1, gpus=(make_gpu(0, mig=make_mig(0, count)), make_gpu(1)))


def test_a_gpu_has_three_names() -> None:
    """Index, type with index, and UUID name the same node."""
    nodes = read_nodes(plan_gpu_devices(make_inventory(2), make_files(2)))
    for name in ("1", "gpu1", make_uuid(1)):
        assert nodes[name] == ["/dev/nvidia1"]


def test_the_node_goes_by_the_minor_number() -> None:
    """NVML's index and the device node's number differ on real nodes."""
    gpu = replace(make_gpu(0), minor=5)
    nodes = read_nodes(plan_gpu_devices(Inventory(generation=1, gpus=(gpu,)), make_files(6)))
    assert nodes["0"] == ["/dev/nvidia5"]


def test_all_is_everything_once() -> None:
    """The name `all` has each node once, whatever the number of names."""
    nodes = read_nodes(plan_gpu_devices(make_inventory(2), make_files(2)))
    assert nodes["all"] == ["/dev/nvidia0", "/dev/nvidia1"]


@pytest.mark.parametrize(
    ("gpu", "reason"),
    [
        (replace(make_gpu(2)), "/dev/nvidia2 is missing"),
        (replace(make_gpu(2), minor=None), "does not tell its minor"),
        (make_gpu(2, lost="fell off the bus"), "fell off the bus"),
    ],
)
def test_one_broken_gpu_costs_only_itself(gpu: Gpu, reason: str) -> None:
    """A GPU without node is left out with the reason; its neighbours keep their names."""
    inventory = Inventory(generation=1, gpus=(make_gpu(0), make_gpu(1), gpu))
    plan = plan_gpu_devices(inventory, make_files(2))
    assert set(read_nodes(plan)) == {"0", "1", "gpu0", "gpu1", make_uuid(0), make_uuid(1), "all"}
    assert [reason in each and make_uuid(2) in each for each in plan.left_out] == [True]


def test_a_mig_device_has_its_parent_and_both_capabilities() -> None:
    """GPU instance and compute instance are opened by their own nodes; the whole GPU has no name."""
    capabilities = make_capabilities(0, {7: 0, 8: 0}, first=12)
    nodes = tuple(f"nvidia-caps/nvidia-cap{minor}" for minor in capabilities.values())
    files = make_files(2, nodes=nodes, capability_minors=capabilities)
    found = read_nodes(plan_gpu_devices(make_partitioned(), files))
    wanted = ["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap14", "/dev/nvidia-caps/nvidia-cap15"]
    uuid = make_mig(0, 2).devices[1].uuid
    assert [found[name] for name in ("0:1", "mig0:1", uuid)] == [wanted, wanted, wanted]
    assert "0" not in found
    assert found["1"] == ["/dev/nvidia1"]


def test_a_mig_device_without_capability_is_left_out() -> None:
    """Either the driver names none, or its node is missing: both cost only that device."""
    capabilities = make_capabilities(0, {7: 0}, first=12)
    plan = plan_gpu_devices(make_partitioned(), make_files(2, capability_minors=capabilities))
    assert "/dev/nvidia-caps/nvidia-cap12 is missing" in plan.left_out[0]
    assert "names no capability gpu0/gi8/access" in plan.left_out[1]
    assert set(read_nodes(plan)) == {"1", "gpu1", make_uuid(1), "all"}


def test_a_mig_device_of_a_lost_gpu_is_left_out() -> None:
    """The parent's fault is the reason."""
    gpu = make_gpu(0, mig=make_mig(0, 1), lost="gone")
    plan = plan_gpu_devices(Inventory(generation=1, gpus=(gpu,)), make_files(1))
    assert plan.devices == ()
    assert "gone" in plan.left_out[0]


def test_mig_mode_without_devices_has_no_names() -> None:
    """A GPU in MIG mode that was not cut yet cannot be handed out."""
    gpu = make_gpu(0, mig=make_mig(0, 0))
    assert plan_gpu_devices(Inventory(generation=1, gpus=(gpu,)), make_files(1)) == DevicePlan()


def test_display_nodes_go_with_their_gpu() -> None:
    """DRM nodes that exist belong to the GPU at their PCI address, and to MIG devices only if they draw."""
    address = make_gpu(0).pci.address
    drm = {address: ("card1", "renderD128"), PciAddress("0000:ff:00.0"): ("card9",)}
    files = make_files(1, nodes=("dri/renderD128",), drm_names=drm)
    nodes = read_nodes(plan_gpu_devices(make_inventory(1), files))
    assert nodes["0"] == ["/dev/nvidia0", "/dev/dri/renderD128"]
    mig = make_mig(0, 1)
    drawing = replace(mig, devices=(replace(mig.devices[0], profile="1g.24gb+gfx"),))
    capabilities = make_capabilities(0, {7: 0}, first=1)
    caps = tuple(f"nvidia-caps/nvidia-cap{minor}" for minor in capabilities.values())
    files = make_files(1, nodes=("dri/renderD128", *caps), drm_names=drm, capability_minors=capabilities)
    for layout, is_drawing in ((mig, False), (drawing, True)):
        inventory = Inventory(generation=1, gpus=(make_gpu(0, mig=layout),))
        found = read_nodes(plan_gpu_devices(inventory, files))["0:0"]
        assert ("/dev/dri/renderD128" in found) is is_drawing


def test_host_path_is_written_only_where_it_differs() -> None:
    """A node of a driver container is found below its root; an ordinary one needs no newer format."""
    for root, expected in (("", ""), ("/run/nvidia/driver", "/run/nvidia/driver/dev/nvidia0")):
        plan = plan_gpu_devices(make_inventory(1), make_files(1, root=root))
        assert plan.devices[0].container_edits.device_nodes[0].host_path == expected


def test_simulated_devices_touch_nothing_of_the_host() -> None:
    """A container of a simulation learns which devices it was given, by variables that add up."""
    inventory = make_partitioned(1)
    plan = plan_gpu_devices(inventory, make_files(made_up=True))
    edits = {device.name: device.container_edits for device in plan.devices}
    assert all(not each.device_nodes and not each.mounts for each in edits.values())
    assert edits["0:0"].env == (f"NODEAGENT_SIMULATED_0_0={make_mig(0, 1).devices[0].uuid}",)
    assert edits["all"].env == (*edits["0:0"].env, f"NODEAGENT_SIMULATED_1={make_uuid(1)}")
    assert plan_gpu_devices(Inventory(generation=1), make_files(made_up=True)) == DevicePlan()


def test_a_star_stands_for_a_number_or_nothing() -> None:
    """`/dev/nvidia-fs*` takes its numbered nodes and no other name that begins alike."""
    files = make_files(0, nodes=("nvidia-fs", "nvidia-fs0", "nvidia-fsx"))
    paths = [node.path for node in plan_node_edits(["/dev/nvidia-fs*"], files).device_nodes]
    assert paths == ["/dev/nvidia-fs", "/dev/nvidia-fs0"]


def test_channels_are_in_order_of_their_numbers() -> None:
    """Each IMEX channel is a device named by its number, and `all` has them all."""
    files = make_files(0, nodes=tuple(f"nvidia-caps-imex-channels/channel{number}" for number in (10, 2)))
    devices = plan_channel_devices(files)
    assert [device.name for device in devices] == ["2", "10", "all"]
    assert len(devices[-1].container_edits.device_nodes) == 2
    assert plan_channel_devices(replace(files, nodes=(make_node("/dev/nvidia0"),))) == ()
