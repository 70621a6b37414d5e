"""Finding the driver in a made-up root."""

import os
import platform
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.edge.host.driver import driver_libraries
from nodeagent.edge.host.driver.driver_files import DriverFileFinder, find_extra_nodes, observe_node
from nodeagent.edge.host.driver.driver_libraries import DriverLibraries, native_triplet, read_driver_version
from nodeagent.edge.host.driver.roots import DriverRoots
from nodeagent.model.cdi import DriverFiles
from nodeagent.model.ids import PciAddress
from tests.support.files.driver_tree import LIBRARY_DIRECTORY, VERSION, DriverTree, encode_library, look_at_file
from tests.unit.edge.host.tree import encode_new_cache

DIRECTORY = f"/{LIBRARY_DIRECTORY}"


@pytest.fixture
def driver(tmp_path: Path) -> DriverTree:
    tree = DriverTree(tmp_path / "root")
    tree.install()
    return tree


def make_finder(tree: DriverTree) -> DriverFileFinder:
    return DriverFileFinder(
        proc_root=tree.root / "proc",
        sys_root=tree.root / "sys",
        libraries=DriverLibraries(machine=62),
        look=look_at_file,
    )


def read(tree: DriverTree, finder: DriverFileFinder | None = None) -> DriverFiles:
    roots = DriverRoots(host=tree.root, driver=tree.root, dev=tree.root)
    return (finder or make_finder(tree)).read(roots)


def read_sonames(files: DriverFiles) -> dict[str, str]:
    return {library.path: library.soname for library in files.libraries}


def test_every_library_of_the_drivers_version_is_found(driver: DriverTree) -> None:
    """Whatever carries the version belongs to the driver, with the name that it says itself."""
    driver.write(f"{LIBRARY_DIRECTORY}/libz.so.1.3", encode_library("libz.so.1"))
    driver.write(f"{LIBRARY_DIRECTORY}/libcuda.so.570.1.2", encode_library("libcuda.so.1"))
    files = read(driver)
    assert files.version == VERSION
    sonames = read_sonames(files)
    assert sonames[f"{DIRECTORY}/libcuda.so.{VERSION}"] == "libcuda.so.1"
    assert sonames[f"{DIRECTORY}/libnvidia-glcore.so.{VERSION}"] == f"libnvidia-glcore.so.{VERSION}"
    assert len(sonames) == 6
    assert files.problems == ()


def test_libraries_with_versions_of_their_own_are_found(driver: DriverTree) -> None:
    """NVVM and the EGL platforms are numbered apart from the driver."""
    for name in ("libnvidia-nvvm70.so.4", "libnvidia-egl-gbm.so.1.1.2"):
        driver.write(f"{LIBRARY_DIRECTORY}/{name}", encode_library(name))
        assert f"{DIRECTORY}/{name}" in read_sonames(read(driver))


def test_a_directory_that_only_the_cache_knows_is_searched(driver: DriverTree) -> None:
    """Drivers outside of the usual directories are found as the loader finds them."""
    driver.write(f"opt/nv/libnvidia-opticalflow.so.{VERSION}", encode_library("libnvidia-opticalflow.so.1"))
    entry = (0x303, "libnvidia-opticalflow.so.1", f"/opt/nv/libnvidia-opticalflow.so.{VERSION}", 0)
    finder = make_finder(driver)
    cache = driver.write("etc/ld.so.cache", encode_new_cache([entry, (0x303, "libcuda.so.1", "relative/x", 0)]))
    assert f"/opt/nv/libnvidia-opticalflow.so.{VERSION}" in read_sonames(read(driver, finder))
    assert f"/opt/nv/libnvidia-opticalflow.so.{VERSION}" in read_sonames(read(driver, finder))
    cache.write_bytes(encode_new_cache([(0x303, "libfoo.so.1", "/opt/foo/libfoo.so.1", 0)]))
    assert f"/opt/nv/libnvidia-opticalflow.so.{VERSION}" not in read_sonames(read(driver, finder))


def test_a_corrupt_cache_costs_only_itself(driver: DriverTree) -> None:
    """The usual directories are searched all the same, and the damage is told."""
    driver.write("etc/ld.so.cache", b"garbage")
    files = read(driver)
    assert len(files.libraries) == 6
    assert "does not begin like one" in files.problems[0]


def test_a_directory_with_two_names_counts_once(driver: DriverTree) -> None:
    """On merged systems /lib is a link to /usr/lib."""
    driver.link("lib", "usr/lib")
    assert len(read(driver).libraries) == 6


def test_links_of_the_host_are_noted(driver: DriverTree) -> None:
    """A program that opens `libcuda.so` finds it in a container as on the host."""
    driver.link(f"{LIBRARY_DIRECTORY}/libcuda.so", "libcuda.so.1")
    links = {library.name: library.links for library in read(driver).libraries}
    assert links[f"libcuda.so.{VERSION}"] == ("libcuda.so",)
    assert links[f"libnvidia-ml.so.{VERSION}"] == ()


def test_a_linked_library_is_its_real_file(driver: DriverTree) -> None:
    """A link with the driver's version leads to the file that is mounted; one that leads nowhere is no library."""
    driver.write("opt/real.so", encode_library("libnvidia-x.so.1"))
    driver.link(f"{LIBRARY_DIRECTORY}/libnvidia-x.so.{VERSION}", "/opt/real.so")
    driver.link(f"{LIBRARY_DIRECTORY}/libnvidia-y.so.{VERSION}", "/opt/nowhere.so")
    sonames = read_sonames(read(driver))
    assert sonames["/opt/real.so"] == "libnvidia-x.so.1"
    assert not [path for path in sonames if "libnvidia-y" in path]


def test_foreign_libraries_are_left_out(driver: DriverTree) -> None:
    """32-bit libraries, other machines' and files that are none do not go to containers."""
    for name, content in {
        "a": encode_library("liba.so.1", bits=32),
        "b": encode_library("libb.so.1", machine=183),
        "c": b"INPUT(libcuda.so)",
    }.items():
        driver.write(f"{LIBRARY_DIRECTORY}/lib{name}.so.{VERSION}", content)
    assert len(read(driver).libraries) == 6


def test_a_name_that_no_file_should_have_is_a_problem(driver: DriverTree) -> None:
    """Control characters do not get into a specification."""
    driver.write(f"{LIBRARY_DIRECTORY}/lib\n.so.{VERSION}", encode_library("libn.so.1"))
    files = read(driver)
    assert len(files.libraries) == 6
    assert "not printable" in files.problems[0]


def test_a_library_that_vanishes_is_a_problem_of_its_own(driver: DriverTree, monkeypatch: pytest.MonkeyPatch) -> None:
    def vanish(path: Path) -> None:
        if path.name.startswith("libcuda"):
            raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr("nodeagent.edge.host.driver.driver_libraries.read_library_identity", vanish)
    files = read(driver)
    assert [problem for problem in files.problems if problem.startswith(f"{DIRECTORY}/libcuda.so.")]


def test_a_second_look_reads_no_library_again(driver: DriverTree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are remembered by file, and a replaced file is read anew."""
    finder = make_finder(driver)
    first = read_sonames(read(driver, finder))
    with monkeypatch.context() as patch:
        patch.setattr(driver_libraries, "read_library_identity", lambda _path: None)
        assert read_sonames(read(driver, finder)) == first
    path = driver.root / LIBRARY_DIRECTORY / f"libcuda.so.{VERSION}"
    path.write_bytes(path.read_bytes().replace(b"libcuda.so.1", b"libhuda.so.1"))
    assert read_sonames(read(driver, finder))[f"{DIRECTORY}/{path.name}"] == "libhuda.so.1"


def test_no_driver_is_an_empty_answer(tmp_path: Path) -> None:
    """A root without driver has no version, no library and no problem."""
    files = read(DriverTree(tmp_path / "empty"))
    assert (files.version, files.libraries, files.files, files.problems) == ("", (), (), ())
    assert read_driver_version(tmp_path) == ""


def test_a_driver_container_is_named_as_the_host_sees_it(tmp_path: Path) -> None:
    """Host paths begin with the driver's root, container paths do not."""
    tree = DriverTree(tmp_path / "run/nvidia/driver")
    tree.install()
    tree.add_nodes(["nvidia0"])
    roots = DriverRoots(host=tmp_path, driver=tree.root, dev=tree.root)
    files = make_finder(tree).read(roots)
    program = next(each for each in files.files if each.name == "nvidia-smi")
    assert (program.path, program.host_path) == ("/usr/bin/nvidia-smi", "/run/nvidia/driver/usr/bin/nvidia-smi")
    assert files.nodes[0].host_path == "/run/nvidia/driver/dev/nvidia0"
    assert all(each.host_path.startswith("/run/nvidia/driver/usr/lib/") for each in files.libraries)


def test_programs_configuration_and_firmware_are_found(driver: DriverTree) -> None:
    """Each is seen at its fixed place, wherever the distribution has it."""
    driver.write("usr/share/vulkan/icd.d/nvidia_icd.json", "{}")
    driver.write("etc/cufile.json", "{}")
    driver.write("usr/bin/nvidia-xconfig", "program")
    driver.write("run/udev/data/x", "")
    driver.write(f"lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin", "")
    driver.write(f"lib/firmware/nvidia/{VERSION}/readme.txt", "")
    paths = {each.path for each in read(driver).files}
    assert paths == {
        "/usr/bin/nvidia-smi",
        "/usr/bin/nvidia-xconfig",
        "/etc/vulkan/icd.d/nvidia_icd.json",
        "/etc/cufile.json",
        "/run/udev",
        f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin",
    }


def test_firmware_of_the_running_kernel_goes_first(driver: DriverTree) -> None:
    """The kernel's own search order decides, beginning with the path it was given."""
    release = platform.release()
    driver.write(f"lib/firmware/nvidia/{VERSION}/gsp.bin", "")
    driver.write(f"lib/firmware/updates/{release}/nvidia/{VERSION}/gsp.bin", "")
    firmware = [each for each in read(driver).files if each.name == "gsp.bin"]
    assert [each.host_path for each in firmware] == [f"/lib/firmware/updates/{release}/nvidia/{VERSION}/gsp.bin"]
    driver.write("sys/module/firmware_class/parameters/path", "/opt/firmware\n")
    driver.write(f"opt/firmware/nvidia/{VERSION}/gsp.bin", "")
    firmware = [each for each in read(driver).files if each.name == "gsp.bin"]
    assert [each.host_path for each in firmware] == [f"/opt/firmware/nvidia/{VERSION}/gsp.bin"]


@pytest.fixture
def daemon(driver: DriverTree, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    directory = driver.root / "run/nvidia-persistenced"
    directory.mkdir(parents=True)
    # A socket's own address is short, so it is bound from within its directory.
    monkeypatch.chdir(directory)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")
        yield


@pytest.mark.usefixtures("daemon")
def test_sockets_of_running_daemons_are_found(driver: DriverTree) -> None:
    """A socket is one; a plain file left in its place is not."""
    driver.write("run/nvidia-fabricmanager/socket", "")
    assert [each.path for each in read(driver).sockets] == ["/run/nvidia-persistenced/socket"]


def test_device_nodes_of_every_kind_are_found(driver: DriverTree) -> None:
    """GPUs, control nodes, capabilities, channels, storage and network nodes; nothing else in /dev."""
    wanted = [
        "nvidia0",
        "nvidiactl",
        "nvidia-uvm",
        "nvidia-caps/nvidia-cap3",
        "nvidia-caps-imex-channels/channel0",
        "nvidia-fs0",
        "gdrdrv",
        "infiniband/uverbs0",
        "infiniband/rdma_cm",
        "dri/card0",
    ]
    driver.add_nodes([*wanted, "null", "nvidia-nonsense", "infiniband/umad0", "dri/by-path"])
    assert {node.path for node in read(driver).nodes} == {f"/dev/{name}" for name in wanted}


def test_the_youngest_device_node_has_its_time(driver: DriverTree) -> None:
    """Also of a node that was made anew under its name."""
    for name in ("nvidia0", "nvidia-uvm"):
        driver.write(f"dev/{name}", "")
    changed = [(driver.root / "dev" / name).stat().st_ctime for name in ("nvidia0", "nvidia-uvm")]
    assert read(driver).nodes_changed_seconds == max(changed) > 0


def test_a_file_in_place_of_a_node_is_a_problem(driver: DriverTree) -> None:
    """A runtime could not make a device of it."""
    driver.write("dev/nvidia0", "")
    finder = DriverFileFinder(proc_root=driver.root / "proc", sys_root=driver.root / "sys")
    files = read(driver, finder)
    assert (files.nodes, files.nodes_changed_seconds) == ((), 0.0)
    assert "/dev/nvidia0: it is no character device" in files.problems
    null = observe_node(Path("/dev/null"))
    assert null is not None
    assert null.st_rdev == os.makedev(1, 3)
    assert observe_node(driver.root / "nowhere") is None


def test_further_nodes_are_found_at_the_end_of_their_links(tmp_path: Path) -> None:
    """A runtime follows no link; a file, a circle and nothing at all are no nodes."""
    (tmp_path / "by-name").symlink_to("/dev/zero")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "file").touch()
    paths = ["/dev/null", *(str(tmp_path / name) for name in ("by-name", "circle", "file", "nothing"))]
    null, zero = find_extra_nodes(Path("/"), paths)
    assert (null.path, null.host_path, null.mode) == ("/dev/null", "/dev/null", 0o666)
    assert (zero.path, zero.host_path) == (str(tmp_path / "by-name"), "/dev/zero")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device nodes")
def test_further_nodes_are_looked_for_in_the_hosts_root(tmp_path: Path) -> None:
    """An agent in a pod sees the host elsewhere; paths stay the host's, and a disk is a device too."""
    (tmp_path / "dev").mkdir()
    os.mknod(tmp_path / "dev/board0", 0o60600, os.makedev(7, 0))
    (tmp_path / "dev/board").symlink_to("/dev/board0")
    (node,) = find_extra_nodes(tmp_path, ["/dev/board", "/dev/null"])
    assert (node.path, node.host_path) == ("/dev/board", "/dev/board0")


def test_capabilities_and_display_devices_are_read(driver: DriverTree) -> None:
    """MIG minors come from /proc, DRM names from /sys; oddly named functions are passed over."""
    driver.write("proc/driver/nvidia-caps/mig-minors", "config 1\ngpu0/gi7/access 66\n")
    driver.write("sys/bus/pci/devices/0000:1b:00.0/drm/card1/dev")
    driver.write("sys/bus/pci/devices/0000:1b:00.0/drm/renderD128/dev")
    driver.write("sys/bus/pci/devices/0000:1c:00.0/class")
    driver.write("sys/bus/pci/devices/nonsense/drm/card7/dev")
    files = read(driver)
    assert files.capability_minors == {"config": 1, "gpu0/gi7/access": 66}
    assert files.drm_names == {PciAddress("0000:1b:00.0"): ("card1", "renderD128")}


def test_this_machine_has_a_triplet() -> None:
    """The two kinds of machine that have NVIDIA drivers are known."""
    assert native_triplet() in {"x86_64-linux-gnu", "aarch64-linux-gnu", ""}
