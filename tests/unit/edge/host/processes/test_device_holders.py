"""Who holds the device files."""

import os
from pathlib import Path

import pytest

from nodeagent.edge.host.processes.device_holders import ContainerPlace, DeviceHolder, parse_cgroup, read_device_holders
from tests.unit.edge.host.tree import HostTree

POD = "0a1b2c3d-1111-2222-3333-444455556666"
CONTAINER = "f" * 64
STATIC = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"0::/kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice/cri-containerd-{CONTAINER}.scope\n",
            ContainerPlace(pod_uid=POD, container_id=CONTAINER),
        ),
        (f"0::/kubepods/besteffort/pod{POD}/{CONTAINER}", ContainerPlace(pod_uid=POD, container_id=CONTAINER)),
        (
            f"12:devices:/kubepods/pod{POD}/{CONTAINER}\n1:name=systemd:/other\n",
            ContainerPlace(pod_uid=POD, container_id=CONTAINER),
        ),
        (
            f"0::/kubepods.slice/kubepods-pod{STATIC}.slice/crio-{CONTAINER}.scope/container\n",
            ContainerPlace(pod_uid=STATIC, container_id=CONTAINER),
        ),
        (
            f"0::/system.slice/containerd.service/kubepods-pod{POD}.slice:cri-containerd:{CONTAINER}",
            ContainerPlace(pod_uid=POD, container_id=CONTAINER),
        ),
        (f"0::/docker/{CONTAINER}", ContainerPlace(container_id=CONTAINER)),
        ("0::/user.slice/user-1000.slice/session-1.scope", ContainerPlace()),
        ("0::/podman-pod", ContainerPlace()),
        ("", ContainerPlace()),
    ],
)
def test_pod_and_container_are_read_from_the_control_group(text: str, expected: ContainerPlace) -> None:
    """Both cgroup versions and both cgroup drivers name pod and container; a host process has neither."""
    assert parse_cgroup(text) == expected


def add_process(host: HostTree, pid: int, descriptors: list[str], *, command: bytes = b"", cgroup: str = "") -> None:
    for number, target in enumerate(descriptors):
        host.link(f"proc/{pid}/fd/{number}", target)
    host.write(f"proc/{pid}/cmdline", command)
    host.write(f"proc/{pid}/comm", "short\n")
    host.write(f"proc/{pid}/cgroup", cgroup)


def test_holders_are_listed_by_pid(host: HostTree) -> None:
    """Only processes with NVIDIA's files open, each file once, in order."""
    add_process(host, 20, ["/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia0"], command=b"python\0train.py\0")
    add_process(host, 3, ["/dev/nvidia-uvm (deleted)"], cgroup=f"0::/kubepods/pod{POD}/{CONTAINER}")
    add_process(host, 4, ["/dev/null", "socket:[1]", "/tmp/dev/nvidia0"])
    host.write("proc/5/comm", "gone")
    host.write("proc/uptime", "1")
    assert read_device_holders(host.proc) == (
        DeviceHolder(pid=3, command="short", devices=("/dev/nvidia-uvm",), pod_uid=POD, container_id=CONTAINER),
        DeviceHolder(pid=20, command="python train.py", devices=("/dev/nvidia0", "/dev/nvidiactl")),
    )


def test_hostile_command_line_is_made_printable(host: HostTree) -> None:
    """Control sequences do not reach the terminal of whoever lists holders, and length is bounded."""
    add_process(host, 7, ["/dev/nvidia0"], command=b"\x1b[2Jevil\n\xff" + b"x" * 9000)
    command = read_device_holders(host.proc)[0].command
    assert command.startswith("[2Jevil �xxx")
    assert len(command) == 200


def test_descriptor_that_closes_meanwhile_is_passed_over(host: HostTree) -> None:
    """A descriptor that is gone when it is looked at costs only itself."""
    add_process(host, 7, ["/dev/nvidia0"])
    host.write("proc/7/fd/9", "no link")
    assert read_device_holders(host.proc)[0].devices == ("/dev/nvidia0",)


def test_own_process_is_found(tmp_path: Path) -> None:
    """On the real /proc the process that holds a file is found by that file."""
    held = tmp_path / "nvidia-like"
    descriptor = os.open(held, os.O_CREAT | os.O_RDWR)
    try:
        holders = read_device_holders(prefix=str(held))
    finally:
        os.close(descriptor)
    assert [(holder.pid, holder.devices) for holder in holders] == [(os.getpid(), (str(held),))]
    assert read_device_holders(prefix=str(held)) == ()
