"""The specifications of a node, as files."""

from pathlib import Path

import pytest
from msgspec import json
from msgspec.structs import replace

from nodeagent.components.cdi.plan_specs import SpecOptions, SpecPlan, plan_specs
from nodeagent.components.cdi.spec import (
    ContainerEdits,
    Device,
    DeviceNode,
    Mount,
    build_spec,
    find_spec_problems,
    render_spec,
    render_spec_name,
)
from nodeagent.model.cdi import DriverFiles
from nodeagent.model.gpu import Inventory
from nodeagent.rules.cdi_names import MANAGEMENT_KIND, OWN_KIND, PUBLIC_KIND, PUBLIC_KINDS
from tests.support.files.driver_files import make_capabilities, make_file, make_files, make_library, make_node
from tests.support.files.golden import check_golden
from tests.support.samples import make_gpu, make_inventory, make_mig

HOOK = Path("/var/lib/nodeagent/nodeagent-cdi-hook")
CAPABILITIES = make_capabilities(1, {7: 0, 8: 0})
PARTITIONED = Inventory(generation=3, gpus=(make_gpu(0), make_gpu(1, mig=make_mig(1, 2))))
PARTITIONED_FILES = make_files(
    2,
    root="/run/nvidia/driver",
    nodes=tuple(f"nvidia-caps/nvidia-cap{minor}" for minor in CAPABILITIES.values()),
    capability_minors=CAPABILITIES,
    sockets=(make_file("/run/nvidia-persistenced/socket", "/run/nvidia/driver"),),
)
EVERYTHING = make_files(
    1,
    nodes=(
        "nvidia-fs0",
        "gdrdrv",
        "infiniband/uverbs0",
        "infiniband/rdma_cm",
        "nvidia-caps-imex-channels/channel0",
        "nvidia-nvswitchctl",
        "nvidia-nvswitch0",
        "nvidia-nvlink",
    ),
    files=(make_file("/usr/bin/nvidia-smi"), make_file("/etc/cufile.json"), make_file("/run/udev")),
)

ADDRESS = make_gpu(0).pci.address
DRAWING = make_files(1, drm_names={ADDRESS: ("card1", "renderD128")})
DRAWING = replace(
    DRAWING,
    nodes=(
        *DRAWING.nodes,
        make_node("/dev/dri/card1", mode=0o660, gid=44),
        make_node("/dev/dri/renderD128", mode=0o660, gid=106),
    ),
)


def render_all(plan: SpecPlan) -> str:
    return "".join(f"--- {render_spec_name(spec.kind)}\n{render_spec(spec).decode()}" for spec in plan.specs)


@pytest.mark.parametrize(
    ("name", "inventory", "files", "requests"),
    [
        ("two-gpus", make_inventory(2), make_files(2), SpecOptions(kinds=(PUBLIC_KIND,))),
        ("mig-in-driver-container", PARTITIONED, PARTITIONED_FILES, SpecOptions()),
        ("with-hook", make_inventory(1), DRAWING, SpecOptions(kinds=(MANAGEMENT_KIND,), hook=HOOK, groups=True)),
        ("every-kind", make_inventory(1), EVERYTHING, SpecOptions(kinds=PUBLIC_KINDS)),
        ("simulated", PARTITIONED, DriverFiles(made_up=True), SpecOptions(kinds=PUBLIC_KINDS, groups=True)),
    ],
)
def test_specifications_are_as_in_the_golden_files(
    name: str, inventory: Inventory, files: DriverFiles, requests: SpecOptions
) -> None:
    """What is written for typical nodes changes only on purpose, and is valid."""
    plan = plan_specs(inventory, files, requests)
    for spec in plan.specs:
        assert find_spec_problems(json.decode(render_spec(spec))) == ()
    check_golden(f"cdi/{name}.txt", render_all(plan))


def test_no_gpu_gives_no_gpu_kind() -> None:
    """A specification without devices would be invalid, so there is none."""
    specs = plan_specs(Inventory(generation=1), make_files(0), SpecOptions(kinds=PUBLIC_KINDS)).specs
    assert [spec.kind for spec in specs] == [MANAGEMENT_KIND]
    nothing = make_files(0, nodes=())
    assert plan_specs(Inventory(generation=1), replace(nothing, nodes=()), SpecOptions(kinds=PUBLIC_KINDS)).specs == ()


def test_the_public_kind_is_only_on_request() -> None:
    """Another tool may define it; ours is asked for explicitly."""
    found = [
        [spec.kind for spec in plan_specs(make_inventory(1), make_files(1), SpecOptions(kinds=kinds)).specs]
        for kinds in ((), (PUBLIC_KIND,), PUBLIC_KINDS)
    ]
    assert found == [[OWN_KIND], [OWN_KIND, PUBLIC_KIND], [OWN_KIND, PUBLIC_KIND, MANAGEMENT_KIND]]


def test_left_out_devices_are_reported() -> None:
    """The plan says which GPU has no entry."""
    assert len(plan_specs(make_inventory(3), make_files(2), SpecOptions()).left_out) == 1


def test_a_hook_without_libraries_makes_no_cache() -> None:
    """With nothing to list there is nothing to link, but the device nodes are protected all the same."""
    files = replace(make_files(1), libraries=())
    spec = plan_specs(make_inventory(1), files, SpecOptions(hook=HOOK)).specs[0]
    assert [hook.args[1] for hook in spec.container_edits.hooks] == [
        "disable-device-node-modification",
        "update-application-profile",
    ]


def test_links_of_a_hook_lead_back_up() -> None:
    """The GBM backend is one directory down, so its link goes one up."""
    files = make_files(1, libraries=(make_library("libnvidia-allocator"),))
    spec = plan_specs(make_inventory(1), files, SpecOptions(hook=HOOK)).specs[0]
    links = spec.container_edits.hooks[0].args
    assert any(link.startswith("--link=../libnvidia-allocator.so.") and "/gbm/" in link for link in links)


def test_a_video_plugin_is_linked_where_any_distribution_opens_it() -> None:
    """Debian's driver keeps it in a directory that no image's VDPAU knows."""
    library = make_library("libvdpau_nvidia", directory="/usr/lib/x86_64-linux-gnu/nvidia/current")
    spec = plan_specs(make_inventory(1), make_files(1, libraries=(library,)), SpecOptions(hook=HOOK)).specs[0]
    links = spec.container_edits.hooks[0].args
    for directory in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"):
        assert f"--link={library.path}::{directory}/vdpau/libvdpau_nvidia.so.1" in links


def test_who_only_looks_after_gpus_has_every_node_and_changes_nothing() -> None:
    """The management kind has the capabilities and channels too, and not what has kinds of its own."""
    files = make_files(1, nodes=("nvidia-caps/nvidia-cap1", "nvidia-fs0", "nvidia-nvlink", "dri/card0", "gdrdrv"))
    specs = {spec.kind: spec for spec in plan_specs(make_inventory(1), files, SpecOptions(PUBLIC_KINDS, HOOK)).specs}
    (device,) = specs[MANAGEMENT_KIND].devices
    names = {node.path.removeprefix("/dev/") for node in device.container_edits.device_nodes}
    assert names == {
        *("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-caps/nvidia-cap1")
    }
    commands = [hook.args[1] for hook in specs[MANAGEMENT_KIND].container_edits.hooks]
    assert commands == ["create-symlinks", "enable-cuda-compat", "update-ldcache"]


def test_groups_go_to_whoever_reads_them() -> None:
    """The nodes keep mode and group either way; the process is made a member only where the version is known."""
    for groups, version in ((True, "0.7.0"), (False, "0.5.0")):
        spec = plan_specs(make_inventory(1), DRAWING, SpecOptions(groups=groups)).specs[0]
        edits = spec.devices[0].container_edits
        assert [(node.gid, node.file_mode) for node in edits.device_nodes] == [(0, 0), (44, 0o660), (106, 0o660)]
        assert (spec.cdi_version, edits.additional_gids) == (version, (44, 106) if groups else ())


@pytest.mark.parametrize(
    ("mode", "gid", "group"),
    [(0o660, 44, 44), (0o666, 44, 0), (0o660, 0, 0), (0o600, 44, 0), (0o664, 44, 44)],
)
def test_a_group_matters_where_it_lets_in_whom_the_others_do_not(mode: int, gid: int, group: int) -> None:
    """A node that everybody may open, or only its owner, needs no group."""
    assert make_node("/dev/dri/card0", mode=mode, gid=gid).group == group


@pytest.mark.parametrize(
    ("kind", "name", "host_path", "mounted", "version"),
    [
        ("nvidia.com/gpu", "gpu0", "", "", "0.3.0"),
        ("nvidia.com/gpu", "gpu0", "", "tmpfs", "0.4.0"),
        ("nvidia.com/gpu", "0", "", "", "0.5.0"),
        ("nvidia.com/gpu", "gpu0", "/run/nvidia/driver/dev/x", "tmpfs", "0.5.0"),
        ("nvidia.com/gpu.coherent", "gpu0", "", "", "0.6.0"),
    ],
)
def test_the_lowest_version_is_declared(kind: str, name: str, host_path: str, mounted: str, version: str) -> None:
    """Old readers refuse versions that the content does not need."""
    node, mount = DeviceNode(path="/dev/x", host_path=host_path), Mount("tmpfs", "/x", type=mounted)
    edits = ContainerEdits(device_nodes=(node,), mounts=(mount,))
    spec = build_spec(kind, (Device(name=name, container_edits=edits),))
    assert spec.cdi_version == version
    assert find_spec_problems(json.decode(render_spec(spec))) == ()


def test_our_specifications_suit_the_oldest_podman() -> None:
    """Podman 4.3 reads nothing newer than 0.5.0."""
    for files in (make_files(2), PARTITIONED_FILES, EVERYTHING, DRAWING):
        for spec in plan_specs(PARTITIONED, files, SpecOptions(kinds=PUBLIC_KINDS, hook=HOOK)).specs:
            assert tuple(map(int, spec.cdi_version.split("."))) <= (0, 5, 0)
