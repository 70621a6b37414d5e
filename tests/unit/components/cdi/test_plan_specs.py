"""The specifications of a node, as files."""

from pathlib import Path

import pytest
from msgspec import json
from msgspec.structs import replace

from nodeagent.components.cdi.plan_specs import SpecPlan, plan_specs
from nodeagent.components.cdi.spec import (
    ContainerEdits,
    Device,
    DeviceNode,
    build_spec,
    render_spec,
    render_spec_name,
)
from nodeagent.components.cdi.validate import find_spec_problems
from nodeagent.model.cdi import DriverFiles
from nodeagent.model.gpu import Inventory
from nodeagent.rules.cdi_names import OWN_KIND, PUBLIC_KIND
from tests.support.driver_files import make_capabilities, make_file, make_files, make_library
from tests.support.golden import check_golden
from tests.support.samples import make_gpu, make_inventory, make_mig

HOOK = Path("/usr/local/lib/nodeagent/nodeagent-cdi-hook")
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
    ),
    files=(make_file("/usr/bin/nvidia-smi"), make_file("/etc/cufile.json"), make_file("/run/udev")),
)


def render_all(plan: SpecPlan) -> str:
    return "".join(f"--- {render_spec_name(spec.kind)}\n{render_spec(spec).decode()}" for spec in plan.specs)


@pytest.mark.parametrize(
    ("name", "inventory", "files", "hook"),
    [
        ("two-gpus", make_inventory(2), make_files(2), None),
        ("mig-in-driver-container", PARTITIONED, PARTITIONED_FILES, None),
        ("with-hook", make_inventory(1), make_files(1), HOOK),
        ("every-kind", make_inventory(1), EVERYTHING, None),
        ("simulated", PARTITIONED, DriverFiles(made_up=True), None),
    ],
)
def test_specifications_are_as_in_the_golden_files(
    name: str, inventory: Inventory, files: DriverFiles, hook: Path | None
) -> None:
    """What is written for typical nodes changes only on purpose, and is valid."""
    plan = plan_specs(inventory, files, public=name == "two-gpus", hook=hook)
    for spec in plan.specs:
        assert find_spec_problems(json.decode(render_spec(spec))) == ()
    check_golden(f"cdi/{name}.txt", render_all(plan))


def test_no_gpu_gives_no_gpu_kind() -> None:
    """A specification without devices would be invalid, so there is none."""
    assert plan_specs(Inventory(generation=1), make_files(0), public=True).specs == ()


def test_the_public_kind_is_only_on_request() -> None:
    """Another tool may define it; ours is asked for explicitly."""
    kinds = [
        [spec.kind for spec in plan_specs(make_inventory(1), make_files(1), public=public).specs]
        for public in (False, True)
    ]
    assert kinds == [[OWN_KIND], [OWN_KIND, PUBLIC_KIND]]


def test_left_out_devices_are_reported() -> None:
    """The plan says which GPU has no entry."""
    assert len(plan_specs(make_inventory(3), make_files(2), public=False).left_out) == 1


def test_a_hook_without_libraries_makes_no_cache() -> None:
    """With nothing to list there is nothing to link, but the device nodes are protected all the same."""
    files = replace(make_files(1), libraries=())
    spec = plan_specs(make_inventory(1), files, public=False, hook=HOOK).specs[0]
    assert [hook.args[1] for hook in spec.container_edits.hooks] == ["disable-device-node-modification"]


def test_links_of_a_hook_lead_back_up() -> None:
    """The GBM backend is one directory down, so its link goes one up."""
    files = make_files(1, libraries=(make_library("libnvidia-allocator"),))
    spec = plan_specs(make_inventory(1), files, public=False, hook=HOOK).specs[0]
    links = spec.container_edits.hooks[0].args
    assert any(link.startswith("--link=../libnvidia-allocator.so.") and "/gbm/" in link for link in links)


@pytest.mark.parametrize(
    ("kind", "name", "host_path", "version"),
    [
        ("nvidia.com/gpu", "gpu0", "", "0.3.0"),
        ("nvidia.com/gpu", "0", "", "0.5.0"),
        ("nvidia.com/gpu", "gpu0", "/run/nvidia/driver/dev/x", "0.5.0"),
        ("nvidia.com/gpu.coherent", "gpu0", "", "0.6.0"),
    ],
)
def test_the_lowest_version_is_declared(kind: str, name: str, host_path: str, version: str) -> None:
    """Old readers refuse versions that the content does not need."""
    node = DeviceNode(path="/dev/x", host_path=host_path)
    spec = build_spec(kind, (Device(name=name, container_edits=ContainerEdits(device_nodes=(node,))),))
    assert spec.cdi_version == version
    assert find_spec_problems(json.decode(render_spec(spec))) == ()


def test_our_specifications_suit_the_oldest_podman() -> None:
    """Podman 4.3 reads nothing newer than 0.5.0."""
    for files in (make_files(2), PARTITIONED_FILES, EVERYTHING):
        for spec in plan_specs(PARTITIONED, files, public=True, hook=HOOK).specs:
            assert tuple(map(int, spec.cdi_version.split("."))) <= (0, 5, 0)
