"""Making device nodes right, in a directory of the test's own."""

import os
import stat
from pathlib import Path

import pytest

from nodeagent.edge.host.devices.device_node_files import DeviceNodeFiles, read_driver_numbers
from nodeagent.edge.host.devices.device_nodes import CapabilityFile
from tests.unit.edge.host.tree import DEVICES, HostTree


def can_make_nodes(directory: Path = Path("/tmp")) -> bool:
    probe = directory / f".nodeagent-mknod-{os.getpid()}"
    try:
        os.mknod(probe, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except OSError:
        return False
    probe.unlink()
    return True


needs_mknod = pytest.mark.skipif(not can_make_nodes(), reason="this user may not make device nodes")


@pytest.fixture
def driver(host: HostTree) -> HostTree:
    """A host with one GPU, its driver loaded and no device node."""
    host.load_module()
    host.write("proc/driver/nvidia/gpus/0000:1b:00.0/information", "Model: \t NVIDIA H100\nDevice Minor: \t 3\n")
    host.write("proc/driver/nvidia/gpus/0000:2b:00.0/information", "Model: \t broken\n")
    host.write("proc/driver/nvidia-caps/mig-minors", "config 1\nmonitor 2\ngpu3/gi1/access 12\n")
    for name, minor, mode in (("mig/config", 1, 256), ("mig/monitor", 2, 292)):
        text = f"DeviceFileMinor: {minor}\nDeviceFileMode: {mode}\nDeviceFileModify: 1\n"
        host.write(f"proc/driver/nvidia/capabilities/{name}", text)
    return host


def build_files(host: HostTree) -> DeviceNodeFiles:
    return DeviceNodeFiles(host.root, proc_root=host.proc, host_root=host.root)


def test_numbers_are_collected_from_the_kernel(driver: HostTree) -> None:
    """GPUs by their minor, capabilities only where their file exists."""
    numbers = read_driver_numbers(driver.proc)
    assert numbers.gpu_minors == (3,)
    assert numbers.majors["nvidia-uvm"] == 508
    assert numbers.capabilities == (CapabilityFile(minor=1, mode=0o400), CapabilityFile(minor=2, mode=0o444))


@needs_mknod
def test_repair_makes_everything_right_and_then_finds_nothing(driver: HostTree) -> None:
    """After one round every node and link is as planned, and a second round does nothing."""
    files = build_files(driver)
    assert files.read_missing() == ("/dev/nvidiactl", "/dev/nvidia3", "/dev/nvidia-uvm")
    repair = files.repair()
    assert repair.failed == ()
    assert "create /dev/nvidia-caps/nvidia-cap1" in repair.done
    assert "link /dev/char/195:3 to /dev/nvidia3" in repair.done
    status = (driver.root / "dev/nvidia3").stat()
    assert (stat.S_ISCHR(status.st_mode), stat.S_IMODE(status.st_mode)) == (True, 0o666)
    assert (os.major(status.st_rdev), os.minor(status.st_rdev)) == (195, 3)
    assert stat.S_IMODE((driver.root / "dev/nvidia-caps/nvidia-cap1").stat().st_mode) == 0o400
    assert str((driver.root / "dev/char/195:3").readlink()) == "/dev/nvidia3"
    assert (files.read_missing(), files.plan(), files.repair().done) == ((), (), ())


@needs_mknod
def test_wanted_imex_channels_are_made(driver: HostTree) -> None:
    """As the driver's other nodes: with their link, once, and never counted among those that containers need."""
    driver.write(
        "proc/devices", DEVICES.replace("510 nvidia-caps\n", "510 nvidia-caps\n234 nvidia-caps-imex-channels\n")
    )
    files = DeviceNodeFiles(driver.root, proc_root=driver.proc, host_root=driver.root, imex_channels=(0,))
    assert "create /dev/nvidia-caps-imex-channels/channel0" in files.repair().done
    status = (driver.root / "dev/nvidia-caps-imex-channels/channel0").stat()
    assert (os.major(status.st_rdev), os.minor(status.st_rdev)) == (234, 0)
    assert files.repair().done == ()
    (driver.root / "dev/nvidia-caps-imex-channels/channel0").unlink()
    assert files.read_missing() == ()


@needs_mknod
def test_wrong_nodes_and_links_are_repaired(driver: HostTree) -> None:
    """Another minor, a plain file, a narrow mode, a link to elsewhere: all become right."""
    files = build_files(driver)
    files.repair()
    dev = driver.root / "dev"
    (dev / "nvidia3").unlink()
    os.mknod(dev / "nvidia3", stat.S_IFCHR | 0o666, os.makedev(195, 9))
    (dev / "nvidiactl").unlink()
    (dev / "nvidiactl").write_text("not a node")
    (dev / "nvidia-uvm").chmod(0o600)
    (dev / "char/508:1").unlink()
    (dev / "char/508:1").symlink_to("/dev/null")
    assert files.read_missing() == ("/dev/nvidiactl", "/dev/nvidia3")
    assert sorted(files.repair().done) == [
        "link /dev/char/508:1 to /dev/nvidia-uvm-tools",
        "replace /dev/nvidia3",
        "replace /dev/nvidiactl",
        "set mode and owner of /dev/nvidia-uvm",
    ]
    assert files.plan() == ()


@needs_mknod
def test_failure_on_one_node_does_not_stop_the_others(driver: HostTree) -> None:
    """What cannot be made is reported with its reason, leaves nothing half made, and the rest is made."""
    (driver.root / "dev/nvidia3").mkdir()
    (driver.root / "dev/nvidia-caps").write_text("a file where a directory should be")
    (driver.root / "dev/char/508:0").mkdir(parents=True)
    repair = build_files(driver).repair()
    assert len(repair.failed) == 3
    assert any("cannot replace" in failure and "nvidia3: is a directory" in failure for failure in repair.failed)
    assert (driver.root / "dev/nvidiactl").is_char_device()
    assert not list((driver.root / "dev").rglob(".*"))


def test_link_that_cannot_be_put_in_place_leaves_nothing_behind(driver: HostTree) -> None:
    """A failed link is reported and its temporary name is gone."""
    (driver.root / "dev/char").write_text("no directory")
    repair = build_files(driver).repair()
    assert any("cannot link" in failure for failure in repair.failed)


def test_driver_that_forbids_it_is_obeyed(driver: HostTree) -> None:
    """ModifyDeviceFiles: 0 means that somebody else makes the nodes."""
    driver.write("proc/driver/nvidia/params", "ModifyDeviceFiles: 0\n")
    files = build_files(driver)
    assert files.repair() == type(files.repair())()
    assert files.read_missing() == ("/dev/nvidiactl", "/dev/nvidia3", "/dev/nvidia-uvm")


def test_host_without_a_driver_needs_nothing(host: HostTree) -> None:
    """No module, no nodes, nothing missing."""
    files = build_files(host)
    assert (files.plan(), files.read_missing()) == ((), ())
