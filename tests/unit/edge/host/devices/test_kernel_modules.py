"""What the kernel tells about the driver's modules."""

import pytest

from nodeagent.edge.host.devices.kernel_modules import (
    ModuleStatus,
    ModuleVersion,
    NodeParameters,
    find_control_major,
    parse_character_majors,
    parse_driver_version,
    parse_modules,
    parse_node_parameters,
    read_module_status,
    read_nvswitch_count,
)
from tests.unit.edge.host.tree import DEVICES, OPEN, PROPRIETARY, HostTree


@pytest.mark.parametrize(
    ("text", "version", "is_open"),
    [
        (PROPRIETARY, "535.129.03", False),
        (OPEN, "580.65.06", True),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.26  Mon\n", "570.26", False),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  570.26  Release Build\n", "570.26", True),
        ("", "", None),
        ("NVRM version: something new 1.2\n", "", None),
        ("GCC version\n" + PROPRIETARY, "", None),
    ],
)
def test_both_layouts_of_the_version_file_are_read(text: str, version: str, is_open: bool | None) -> None:
    """The version is the first dotted number after the word Module of the first line."""
    assert parse_driver_version(text) == ModuleVersion(version=version, open_module=is_open)


def test_loaded_module_is_described(host: HostTree) -> None:
    """/sys gives the version, /proc the flavour."""
    host.load_module()
    assert read_module_status(host.sys, host.proc) == ModuleStatus(loaded=True, version="580.65.06", open_module=True)


def test_absent_module_is_described(host: HostTree) -> None:
    """A host without the driver is an answer, not an error."""
    assert read_module_status(host.sys, host.proc) == ModuleStatus()


def test_module_on_its_way_is_not_loaded(host: HostTree) -> None:
    """The directory alone, without its use count, is a module that is coming or going."""
    (host.sys / "module/nvidia").mkdir(parents=True)
    assert not read_module_status(host.sys, host.proc).loaded


def test_hidden_sys_is_made_up_for_by_proc(host: HostTree) -> None:
    host.write("proc/modules", "nvidia 11563008 31 nvidia_uvm, Live 0x0 (OE)\nnouveau 1 0 - Unloading 0x0\n")
    status = read_module_status(host.sys, host.proc)
    assert (status.loaded, status.nouveau_loaded) == (True, False)
    host.write("proc/driver/nvidia/version", PROPRIETARY)
    assert read_module_status(host.sys, host.proc).version == "535.129.03"


def test_unified_memory_is_noticed(host: HostTree) -> None:
    """By either of the kernel's lists, and in the kernel's spelling."""
    assert not read_module_status(host.sys, host.proc).unified_memory_loaded
    host.write("proc/modules", "nvidia_uvm 2000000 3 - Live 0x0\n")
    assert read_module_status(host.sys, host.proc).unified_memory_loaded
    host.write("proc/modules", "")
    (host.sys / "module/nvidia_uvm").mkdir(parents=True)
    assert read_module_status(host.sys, host.proc).unified_memory_loaded


@pytest.mark.parametrize("where", ["sys", "proc"])
def test_nouveau_is_noticed(host: HostTree, where: str) -> None:
    """Either place shows the other driver."""
    if where == "sys":
        (host.sys / "module/nouveau").mkdir(parents=True)
    else:
        host.write("proc/modules", "nouveau 2000000 3 - Live 0x0\n")
    assert read_module_status(host.sys, host.proc).nouveau_loaded


def test_odd_module_lines_are_passed_over() -> None:
    """Lines of another form cost nothing."""
    assert parse_modules("\nnvidia\nnvidia 1 0 -\nloop 1 0 - Live 0x0") == {"loop"}


def test_majors_are_those_of_character_devices() -> None:
    """Block devices have numbers of their own."""
    majors = parse_character_majors(DEVICES)
    assert majors["nvidia-uvm"] == 508
    assert "nvidia-nonsense" not in majors
    assert "loop" not in majors


def test_control_major_has_an_older_name() -> None:
    """Drivers before 550.40 call it nvidia-frontend."""
    assert find_control_major({"nvidia": 195, "nvidia-frontend": 196}) == 195
    assert find_control_major({"nvidia-frontend": 196}) == 196
    assert find_control_major({}) is None


def test_node_parameters_are_read() -> None:
    """Numbers are decimal, as the driver writes them."""
    text = 'ModifyDeviceFiles: 0\nDeviceFileUID: 10\nDeviceFileGID: 44\nDeviceFileMode: 432\nRegistryDwords: "x"\n'
    assert parse_node_parameters(text) == NodeParameters(modify=False, uid=10, gid=44, mode=0o660)


def test_silent_driver_means_its_defaults() -> None:
    """Without the file everybody may use the nodes, as the driver's own default is."""
    assert parse_node_parameters("") == NodeParameters(modify=True, uid=0, gid=0, mode=0o666)


def test_nvswitches_are_counted(host: HostTree) -> None:
    assert read_nvswitch_count(host.proc) == 0
    for name in ("0", "1"):
        (host.proc / "driver/nvidia-nvswitch/devices" / name).mkdir(parents=True)
    assert read_nvswitch_count(host.proc) == 2
