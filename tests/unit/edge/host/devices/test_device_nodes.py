"""Which device nodes should be, and what differs from that."""

import stat
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from nodeagent.edge.host.devices.device_nodes import (
    CapabilityFile,
    DeviceNode,
    DriverNumbers,
    NodeStatus,
    NodeStep,
    diff_device_node,
    list_impossible_nodes,
    parse_mig_minors,
    plan_capability_path,
    plan_device_nodes,
    render_link_target,
)
from nodeagent.edge.host.devices.kernel_modules import NodeParameters

MAJORS = {"nvidia": 195, "nvidia-uvm": 508, "nvidia-caps": 510}
NODE = DeviceNode(name="nvidia0", major=195, minor=0)
LINK = PurePosixPath("/dev/nvidia0")


def test_nodes_of_a_whole_driver_are_planned() -> None:
    """Control, modeset, one for each GPU by its minor, UVM, and the capabilities, each with its number."""
    nodes = plan_device_nodes(
        DriverNumbers(
            majors=MAJORS,
            gpu_minors=(3, 0, 3),
            capabilities=(
                CapabilityFile(minor=2, mode=0o444),
                CapabilityFile(minor=1, mode=0o400),
                CapabilityFile(minor=9, mode=0o400, modify=False),
            ),
        )
    )
    assert [(node.name, node.major, node.minor, node.mode, node.required) for node in nodes] == [
        ("nvidiactl", 195, 255, 0o666, True),
        ("nvidia-modeset", 195, 254, 0o666, False),
        ("nvidia0", 195, 0, 0o666, True),
        ("nvidia3", 195, 3, 0o666, True),
        ("nvidia-uvm", 508, 0, 0o666, True),
        ("nvidia-uvm-tools", 508, 1, 0o666, False),
        ("nvidia-caps/nvidia-cap1", 510, 1, 0o400, False),
        ("nvidia-caps/nvidia-cap2", 510, 2, 0o444, False),
    ]


def test_driver_parameters_set_mode_and_owner() -> None:
    """A site that gives the nodes to a group gets them that way; capability nodes stay root's."""
    numbers = DriverNumbers(
        majors=MAJORS,
        capabilities=(CapabilityFile(minor=1, mode=0o400),),
        parameters=NodeParameters(uid=1, gid=44, mode=0o660),
    )
    owners = {(node.name, node.mode, node.uid, node.gid) for node in plan_device_nodes(numbers)}
    assert ("nvidiactl", 0o660, 1, 44) in owners
    assert ("nvidia-uvm", 0o660, 1, 44) in owners
    assert ("nvidia-caps/nvidia-cap1", 0o400, 0, 0) in owners


def test_modules_that_are_not_loaded_need_no_nodes() -> None:
    """Without a device number there is no node to make."""
    assert plan_device_nodes(DriverNumbers(majors={"nvidia-uvm": 508})) == ()
    assert [node.name for node in plan_device_nodes(DriverNumbers(majors={"nvidia-frontend": 195}))] == [
        "nvidiactl",
        "nvidia-modeset",
    ]


def test_imex_channels_are_made_where_the_kernel_has_their_number() -> None:
    """Each wanted channel is the minor of its own number; a node outside a multi-node domain has none."""
    numbers = DriverNumbers(majors=MAJORS | {"nvidia-caps-imex-channels": 234}, imex_channels=(7, 0, 7))
    assert [
        (node.name, node.major, node.minor, node.mode, node.required) for node in plan_device_nodes(numbers)[-2:]
    ] == [
        ("nvidia-caps-imex-channels/channel0", 234, 0, 0o666, False),
        ("nvidia-caps-imex-channels/channel7", 234, 7, 0o666, False),
    ]
    without = plan_device_nodes(DriverNumbers(majors=MAJORS, imex_channels=(0,)))
    assert not [node.name for node in without if "imex" in node.name]


def test_missing_uvm_module_is_named() -> None:
    """CUDA needs a node that cannot exist before its module is loaded, although nvidia-smi works."""
    assert list_impossible_nodes(DriverNumbers(majors=MAJORS)) == ()
    assert list_impossible_nodes(DriverNumbers(majors={})) == ()
    assert "nvidia_uvm is not loaded" in list_impossible_nodes(DriverNumbers(majors={"nvidia": 195}))[0]


def test_mig_minors_are_read() -> None:
    """All four forms give a name and a number; other lines are left out."""
    text = "config 1\nmonitor 2\ngpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\nodd\nodd line x\n 7\n"
    assert parse_mig_minors(text) == {
        "config": 1,
        "monitor": 2,
        "gpu0/gi1/access": 12,
        "gpu0/gi1/ci0/access": 13,
    }


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("config", "mig/config"),
        ("monitor", "mig/monitor"),
        ("gpu3/gi1/access", "gpu3/mig/gi1/access"),
        ("gpu3/gi1/ci0/access", "gpu3/mig/gi1/ci0/access"),
    ],
)
def test_capability_file_is_found_by_name(name: str, path: str) -> None:
    """The two trees of the driver name the same capability differently."""
    assert plan_capability_path(name) == path


def find(**changes: Any) -> NodeStatus:
    right: dict[str, Any] = {
        "exists": True,
        "mode": stat.S_IFCHR | 0o666,
        "major": 195,
        "minor": 0,
        "link_target": "/dev/nvidia0",
    }
    return NodeStatus(**(right | changes))


@pytest.mark.parametrize(
    ("found", "steps"),
    [
        (find(), []),
        (find(link_target="../nvidia0"), []),
        (NodeStatus(), [NodeStep.CREATE, NodeStep.LINK]),
        (NodeStatus(link_target="/dev/nvidia0"), [NodeStep.CREATE]),
        (find(minor=1), [NodeStep.REPLACE]),
        (find(major=234), [NodeStep.REPLACE]),
        (find(mode=stat.S_IFREG | 0o666), [NodeStep.REPLACE]),
        (find(mode=stat.S_IFBLK | 0o666), [NodeStep.REPLACE]),
        (find(mode=stat.S_IFCHR | 0o600), [NodeStep.SET_OWNERSHIP]),
        (find(uid=5), [NodeStep.SET_OWNERSHIP]),
        (find(gid=5), [NodeStep.SET_OWNERSHIP]),
        (find(link_target=None), [NodeStep.LINK]),
        (find(link_target="/dev/nvidia1"), [NodeStep.LINK]),
        (find(link_target="../nvidia1"), [NodeStep.LINK]),
        (find(link_target=None, link_blocked=True), []),
    ],
)
def test_only_what_differs_is_changed(found: NodeStatus, steps: list[NodeStep]) -> None:
    """A node and a link that are right are left alone, wrong ones are repaired, foreign things stay."""
    assert [change.step for change in diff_device_node(NODE, found, LINK)] == steps


@pytest.mark.parametrize(
    ("dev_root", "host_root", "target"),
    [
        ("/", "/", "/dev/nvidia0"),
        ("/run/nvidia/driver", "/", "/run/nvidia/driver/dev/nvidia0"),
        ("/host", "/host", "/dev/nvidia0"),
        ("/host/run/nvidia/driver", "/host", "/run/nvidia/driver/dev/nvidia0"),
        ("/driver-root", "/host", "/driver-root/dev/nvidia0"),
    ],
)
def test_link_leads_where_the_host_sees_the_node(dev_root: str, host_root: str, target: str) -> None:
    """A link made from inside a container must be right outside of it."""
    assert str(render_link_target(NODE, Path(dev_root), Path(host_root))) == target
