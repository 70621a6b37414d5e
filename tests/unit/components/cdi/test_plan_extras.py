"""What the configuration gives every container with a GPU besides."""

from pathlib import Path

import pytest
from msgspec import json

from nodeagent.components.cdi.plan_extras import list_missing_devices, plan_extra_edits
from nodeagent.components.cdi.plan_specs import SpecOptions, plan_common_edits, plan_specs
from nodeagent.components.cdi.spec import NO_EDITS, DeviceNode, find_spec_problems, render_spec
from nodeagent.config.sections.containers import ContainersSettings, ExtraDevice
from nodeagent.model.cdi import DriverFiles, DriverNode
from nodeagent.rules.cdi_names import MANAGEMENT_KIND, OWN_KIND, PUBLIC_KINDS
from tests.support.files.driver_files import VERSION, make_files, make_node
from tests.support.samples import make_inventory

SETTINGS = ContainersSettings(
    extra_devices=(
        ExtraDevice(host=Path("/dev/serial/board"), container=Path("/dev/board"), permissions="rwm"),
        ExtraDevice(host=Path("/dev/kvm")),
        ExtraDevice(host=Path("/dev/gone")),
        ExtraDevice(host=Path("/dev/gone"), container=Path("/dev/other")),
    ),
    extra_environment={"POOL": "a", "EMPTY": ""},
)
NODES = (
    DriverNode(path="/dev/serial/board", host_path="/dev/ttyUSB0", mode=0o620, gid=20),
    make_node("/dev/kvm", mode=0o660, gid=104),
)


def test_existing_nodes_and_all_variables_are_given() -> None:
    """A node at the end of a link under the path that was asked for, a group's node with the group."""
    edits = plan_extra_edits(SETTINGS, make_files(1, extra_nodes=NODES))
    assert edits.env == ("EMPTY=", "POOL=a")
    assert edits.device_nodes == (
        DeviceNode(path="/dev/board", host_path="/dev/ttyUSB0", permissions="rwm"),
        DeviceNode(path="/dev/kvm", file_mode=0o660, permissions="rw", gid=104),
    )
    assert edits.additional_gids == (104,)
    assert plan_extra_edits(ContainersSettings(), make_files(1, extra_nodes=NODES)) == NO_EDITS


def test_a_missing_node_is_told_once_and_is_in_no_specification() -> None:
    """A container does not fail to start for it."""
    files = make_files(1, extra_nodes=NODES)
    assert list_missing_devices(SETTINGS, files) == ("/dev/gone",)
    plan = plan_specs(make_inventory(1), files, SpecOptions(containers=SETTINGS))
    assert plan.missing == ("/dev/gone",)
    assert b"gone" not in render_spec(plan.specs[0])
    assert list_missing_devices(SETTINGS, DriverFiles(made_up=True)) == ()


def test_they_are_for_containers_with_gpus_alone() -> None:
    """All names of a kind have them, and programs that look after GPUs do not; groups are of both sorts of nodes."""
    files = make_files(1, extra_nodes=NODES, nodes=())
    requests = SpecOptions(kinds=PUBLIC_KINDS, groups=True, public_groups=True, containers=SETTINGS)
    specs = {spec.kind: spec for spec in plan_specs(make_inventory(1), files, requests).specs}
    for kind, spec in specs.items():
        assert not find_spec_problems(json.decode(render_spec(spec)))
        has_extras = kind != MANAGEMENT_KIND
        assert ("POOL=a" in spec.container_edits.env) == has_extras
        assert (104 in spec.container_edits.additional_gids) == has_extras
        assert ("/dev/board" in {node.path for node in spec.container_edits.device_nodes}) == has_extras
    assert OWN_KIND in specs


@pytest.mark.parametrize("hook", [None, Path("/var/lib/nodeagent/nodeagent-cdi-hook")])
def test_the_layout_is_for_all_containers_with_the_drivers_files(hook: Path | None) -> None:
    """Under all names of a library, be it by mounts or by links; the linker's cache and variables stay as they are."""
    files = make_files(1)
    usual = plan_common_edits(files, SpecOptions(hook=hook))
    settings = ContainersSettings(layout="usr_local_nvidia")
    for only_looking in (False, True):
        edits = plan_common_edits(files, SpecOptions(hook=hook, containers=settings), only_looking=only_looking)
        places = {mount.container_path for mount in edits.mounts}
        links = {argument.partition("::")[2] for each in edits.hooks for argument in each.args if "::" in argument}
        names = ("libcuda.so", "libcuda.so.1", f"libcuda.so.{VERSION}")
        assert {f"/usr/local/nvidia/lib64/{name}" for name in names} <= places | links
        assert "/usr/local/nvidia/bin/nvidia-smi" in places
        assert edits.env == usual.env
        assert [each for each in usual.hooks if "update-ldcache" in each.args] == [
            each for each in edits.hooks if "update-ldcache" in each.args
        ]
