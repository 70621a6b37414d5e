"""The runtime shim's table, as values."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from nodeagent.components.cdi.plan_shim import plan_shim_table
from nodeagent.components.cdi.plan_specs import SpecOptions, plan_specs
from nodeagent.config.sections.containers import ContainersSettings, ExtraDevice
from nodeagent.model.cdi import DriverFiles
from nodeagent.model.gpu import Gpu, Inventory
from nodeagent.model.shim import Capability, ShimDevice, ShimEnv, ShimGroup, ShimHook, ShimNode, ShimPolicy, ShimTable
from nodeagent.rules.cdi_names import MANAGEMENT_KIND, PUBLIC_KIND
from tests.support.files.driver_files import make_capabilities, make_files, make_node
from tests.support.samples import make_gpu, make_mig

DRAWING = Capability.GRAPHICS | Capability.DISPLAY
CAPABILITIES = make_capabilities(1, {7: 0, 8: 0}) | {"config": 1, "monitor": 2}
NODES = tuple(f"nvidia-caps/nvidia-cap{minor}" for minor in CAPABILITIES.values())


def make_node_of(*gpus: Gpu) -> Inventory:
    return Inventory(generation=1, gpus=gpus)


def plan(
    inventory: Inventory,
    files: DriverFiles,
    hook: Path | None = None,
    containers: ContainersSettings = ContainersSettings(),  # noqa: B008  # a frozen value
) -> ShimTable:
    kinds = (PUBLIC_KIND, MANAGEMENT_KIND)
    requests = SpecOptions(kinds=kinds, hook=hook, groups=True, public_groups=True, containers=containers)
    specs = plan_specs(inventory, files, requests).specs
    return plan_shim_table(inventory, files, specs, ShimPolicy(), cuda="13.0", fresh=(("/a", "b"),))


def find(table: ShimTable, kind: str, name: str) -> ShimDevice:
    (found,) = [each for each in table.devices if each.kind == kind and name in each.names]
    return found


def list_nodes(device: ShimDevice) -> list[str]:
    return [entry.path for edits in device.edits for entry in edits if isinstance(entry, ShimNode)]


def test_a_gpu_has_every_name_and_its_node() -> None:
    """By index and UUID everywhere, by its place on the bus in mode legacy, and qualified with what all GPUs get."""
    gpu = replace(make_gpu(0), compute_capability=(9, 0), brand="NVIDIA")
    table = plan(make_node_of(gpu), make_files(1))
    device = find(table, "gpu", "0")
    assert device.names == ("0", gpu.uuid)
    address = gpu.pci.address
    assert device.legacy_names == (address, f"0000{address}", address.removeprefix("0000:"))
    assert (device.arch, device.brand) == ("9.0", "nvidia")
    assert list_nodes(device) == ["/dev/nvidia0"]
    common = find(table, "extra", "common")
    assert "/dev/nvidiactl" in list_nodes(common)
    assert find(table, "cdi", f"{PUBLIC_KIND}=0").edits == (*device.edits, *common.edits)
    assert list_nodes(find(table, "cdi", f"{MANAGEMENT_KIND}=all"))
    assert (table.cuda, table.driver, table.fresh) == ("13.0", make_files(1).version, (("/a", "b"),))
    assert ShimEnv(wanted_by=Capability.ALWAYS, name="NVIDIA_VISIBLE_DEVICES", value="void") in common.edits[-1]


@pytest.mark.parametrize(
    ("brand", "word"),
    [
        ("NVIDIA RTX", "nvidiartx"),
        ("Quadro RTX", "quadrortx"),
        ("NVIDIA vWS", "vws"),
        ("NVIDIA vGaming", "cloudgaming"),
        ("Titan", "titan"),
        ("", ""),
    ],
)
def test_a_brand_has_the_word_that_images_require(brand: str, word: str) -> None:
    """As CUDA's images spell it in NVIDIA_REQUIRE_CUDA: `brand=nvidiartx,driver>=535,driver<536`."""
    table = plan(make_node_of(replace(make_gpu(0), brand=brand)), make_files(1))
    assert find(table, "gpu", "0").brand == word


def test_a_gpu_in_parts_is_its_parts_and_a_parent_without_rights() -> None:
    """A part has the nodes of its rights; who configures and who watches has those of theirs."""
    gpu = replace(make_gpu(1, mig=make_mig(1, 2)), compute_capability=None)
    table = plan(make_node_of(make_gpu(0), gpu), make_files(2, nodes=NODES, capability_minors=CAPABILITIES))
    parent = find(table, "parent", "1")
    assert parent.names == ("1", gpu.uuid)
    assert parent.arch == ""
    assert list_nodes(parent) == ["/dev/nvidia1"]
    part = find(table, "gpu", "1:0")
    assert gpu.mig_devices[0].uuid in part.names
    assert part.legacy_names == ()
    assert list_nodes(part) == ["/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap3", "/dev/nvidia-caps/nvidia-cap4"]
    assert list_nodes(find(table, "extra", "mig-config")) == ["/dev/nvidia-caps/nvidia-cap1"]
    assert list_nodes(find(table, "extra", "mig-monitor")) == ["/dev/nvidia-caps/nvidia-cap2"]


def test_what_has_no_node_has_no_name() -> None:
    """Neither a GPU nor a parent, nor rights that the driver does not name; a bus id keeps its domain."""
    gpu = make_gpu(0)
    gpu = replace(gpu, pci=replace(gpu.pci, address="0001:07:00.0"))
    table = plan(make_node_of(gpu, make_gpu(1, mig=make_mig(1, 2))), make_files(1))
    assert find(table, "gpu", "0").legacy_names == ("0001:07:00.0", "00000001:07:00.0")
    assert [each.names for each in table.devices if each.kind == "parent"] == []
    assert {each.names for each in table.devices if each.kind == "extra"} == {("common",)}
    assert plan(make_node_of(), make_files(0, nodes=(), libraries=())).devices != ()
    assert plan_shim_table(make_node_of(gpu), make_files(1), (), ShimPolicy()).devices == ()


def test_channels_and_extras_have_names_of_their_own() -> None:
    """A channel by its number alone, since `all` is none."""
    nodes = ("nvidia-caps-imex-channels/channel0", "nvidia-caps-imex-channels/channel3", "gdrdrv")
    table = plan(make_node_of(make_gpu(0)), make_files(1, nodes=nodes))
    assert [each.names for each in table.devices if each.kind == "imex"] == [("0",), ("3",)]
    assert list_nodes(find(table, "extra", "gdrcopy")) == ["/dev/gdrdrv"]


def test_links_are_made_for_who_wants_what_they_lead_to() -> None:
    """One hook for each capability; groups are for the nodes of the screen."""
    address = make_gpu(0).pci.address
    files = make_files(1, drm_names={address: ("card1",)})
    files = replace(files, nodes=(*files.nodes, make_node("/dev/dri/card1", mode=0o660, gid=44)))
    table = plan(make_node_of(make_gpu(0)), files, Path("/hook"))
    device = find(table, "gpu", "0")
    assert ShimGroup(wanted_by=DRAWING, gid=44) in device.edits[0]
    (links,) = [entry for entry in device.edits[0] if isinstance(entry, ShimHook)]
    assert links.wanted_by == DRAWING
    hooks = [entry for entry in find(table, "extra", "common").edits[-1] if isinstance(entry, ShimHook)]
    made = {entry.wanted_by: entry.args for entry in hooks if "create-symlinks" in entry.args}
    assert set(made) == {Capability.UTILITY, Capability.COMPUTE | Capability.VIDEO}
    assert all("libnvidia-ml" in argument for argument in made[Capability.UTILITY][2:])
    assert {entry.wanted_by for entry in hooks if "create-symlinks" not in entry.args} == {Capability.ALWAYS}


def test_what_the_settings_add_is_for_every_container_with_a_gpu() -> None:
    """Whatever capabilities of the driver it asks for; the group comes with the node."""
    containers = ContainersSettings(
        extra_devices=(ExtraDevice(host=Path("/dev/fuse")),), extra_environment={"POOL": "a=b"}
    )
    files = make_files(1, extra_nodes=(make_node("/dev/fuse", mode=0o660, gid=12),))
    table = plan(make_node_of(make_gpu(0)), files, containers=containers)
    entries = find(table, "extra", "common").edits[-1]
    assert ShimEnv(wanted_by=Capability.ALWAYS, name="POOL", value="a=b") in entries
    assert ShimGroup(wanted_by=Capability.ALWAYS, gid=12) in entries
    (node,) = [each for each in entries if isinstance(each, ShimNode) and each.path == "/dev/fuse"]
    assert (node.wanted_by, node.host_path, node.permissions) == (Capability.ALWAYS, "/dev/fuse", "rw")
    assert "/dev/fuse" in list_nodes(find(table, "cdi", f"{PUBLIC_KIND}=0"))
    assert "/dev/fuse" not in list_nodes(find(table, "cdi", f"{MANAGEMENT_KIND}=all"))
