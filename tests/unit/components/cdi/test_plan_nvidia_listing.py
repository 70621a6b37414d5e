"""The listing, line by line against the sources of libnvidia-container, by file and commit.

Order of the kinds, and MIG: `src/cli/list.c` (13f20464). Choice of devices: `src/cli/common.c` (1aea9873). Names of
libraries and programs with their order, nodes, sockets: `src/nvc_info.c` (00b4b47e). Paths below /proc and /dev:
`src/nvc_internal.h` (16b6d2ce).
"""

import pytest
from msgspec.structs import replace

from nodeagent.components.cdi.plan_nvidia_listing import (
    EVERYTHING,
    LISTED_LIBRARIES,
    DriverPlaces,
    Listing,
    ListingRefused,
    plan_listing,
)
from nodeagent.model.cdi import DriverFiles
from nodeagent.model.gpu import Gpu, Inventory
from tests.support.files.driver_files import (
    DIRECTORY,
    VERSION,
    make_capabilities,
    make_file,
    make_files,
    make_library,
    make_node,
)
from tests.support.samples import make_gpu, make_mig, make_uuid

CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
CAPABILITIES = "/proc/driver/nvidia/capabilities"
FIRMWARE = f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin"


def make_node_of(*gpus: Gpu) -> Inventory:
    return Inventory(generation=1, gpus=gpus)


def make_whole_driver() -> DriverFiles:
    """A driver below `/run/nvidia/driver`, whose programs lie where Debian keeps alternatives."""
    root = "/run/nvidia/driver"
    stems = ("libEGL_nvidia", "libcuda", "libnvidia-egl-wayland", "libnvidia-ml")
    programs = ("nvidia-cuda-mps-control", "nv-fabricmanager", "nvidia-imex", "nvidia-smi")
    return make_files(
        2,
        root=root,
        libraries=(
            *(make_library(stem, root=root) for stem in stems),
            make_library("libvdpau_nvidia", root=root, directory=f"{DIRECTORY}/vdpau"),
            make_library("libcuda", root=root, directory="/usr/lib64"),
        ),
        files=(
            *(replace(make_file(f"/usr/bin/{name}"), host_path=f"{root}/usr/lib/nvidia/{name}") for name in programs),
            make_file(FIRMWARE, root),
            make_file("/etc/OpenCL/vendors/nvidia.icd", root),
        ),
        sockets=(make_file("/run/nvidia-fabricmanager/socket"), make_file("/run/nvidia-persistenced/socket")),
    )


PLACES = DriverPlaces(
    root="/run/nvidia/driver", libraries32=("/usr/lib32/libcuda.so.1.0",), mps_pipes="/tmp/nvidia-mps"
)
PROGRAMS = tuple(f"/usr/lib/nvidia/{name}" for name in ("nvidia-smi", "nv-fabricmanager", "nvidia-cuda-mps-control"))
OWN_LIBRARIES = tuple(f"{DIRECTORY}/{stem}.so.{VERSION}" for stem in ("libnvidia-ml", "libcuda", "libEGL_nvidia"))
SOCKETS = ("/run/nvidia-persistenced/socket", "/run/nvidia-fabricmanager/socket")


def test_everything_is_listed_kind_by_kind() -> None:
    """Nodes, programs, libraries, 32-bit libraries, sockets, firmware: each in the order of NVIDIA's program."""
    paths = plan_listing(EVERYTHING, make_node_of(make_gpu(0), make_gpu(1)), make_whole_driver(), PLACES)
    assert paths == (
        *(*CONTROL, "/dev/nvidia0", "/dev/nvidia1"),
        *PROGRAMS,
        *OWN_LIBRARIES,
        "/usr/lib32/libcuda.so.1.0",
        *(*SOCKETS, "/tmp/nvidia-mps"),
        FIRMWARE,
    )


@pytest.mark.parametrize(
    ("wanted", "paths"),
    [
        (Listing(programs=True), PROGRAMS),
        (Listing(libraries=True), OWN_LIBRARIES),
        (Listing(compat32=True), ()),
        (Listing(libraries=True, compat32=True), (*OWN_LIBRARIES, "/usr/lib32/libcuda.so.1.0")),
        (Listing(sockets=True), (*SOCKETS, "/tmp/nvidia-mps")),
        (Listing(sockets=True, persistenced=False), (SOCKETS[1], "/tmp/nvidia-mps")),
        (Listing(sockets=True, fabric_manager=False), (SOCKETS[0], "/tmp/nvidia-mps")),
        (Listing(firmware=True), (FIRMWARE,)),
        (Listing(channels="0,12"), tuple(f"/dev/nvidia-caps-imex-channels/channel{number}" for number in (0, 12))),
        (Listing(persistenced=False), ()),
    ],
)
def test_an_option_lists_its_kind_alone(wanted: Listing, paths: tuple[str, ...]) -> None:
    assert plan_listing(wanted, make_node_of(make_gpu(0)), make_whole_driver(), PLACES) == paths


def test_a_driver_on_the_host_has_its_paths_as_they_are() -> None:
    files = make_files(1)
    assert plan_listing(Listing(programs=True), make_node_of(make_gpu(0)), files, DriverPlaces()) == (
        "/usr/bin/nvidia-smi",
    )
    assert plan_listing(Listing(sockets=True), make_node_of(make_gpu(0)), files, DriverPlaces()) == ()


def test_each_library_has_one_place_in_the_order() -> None:
    assert len(set(LISTED_LIBRARIES)) == len(LISTED_LIBRARIES)


@pytest.mark.parametrize(
    ("ids", "nodes"),
    [
        ("1", ("/dev/nvidia1",)),
        ("1,,0", ("/dev/nvidia1", "/dev/nvidia0")),
        ("0,0", ("/dev/nvidia0",)),
        (make_uuid(1).upper(), ("/dev/nvidia1",)),
        ("00000000:11:00.0", ("/dev/nvidia1",)),
        ("0:11:00", ("/dev/nvidia1",)),
        ("ALL", ("/dev/nvidia0", "/dev/nvidia1")),
    ],
)
def test_a_gpu_goes_by_index_uuid_or_place_on_the_bus(ids: str, nodes: tuple[str, ...]) -> None:
    inventory = make_node_of(make_gpu(0), make_gpu(1))
    assert plan_listing(Listing(devices=ids), inventory, make_files(2), DriverPlaces()) == (*CONTROL, *nodes)


def test_a_node_without_its_minor_number_has_no_line() -> None:
    inventory = make_node_of(replace(make_gpu(0), minor=None))
    files = make_files(0, nodes=())
    assert plan_listing(Listing(devices="all"), inventory, files, DriverPlaces()) == CONTROL


def make_partitioned() -> tuple[Inventory, DriverFiles]:
    """GPU 0 in two MIG devices, with minor number 3, and a whole GPU without MIG."""
    gpu = replace(make_gpu(0, mig=make_mig(0, 2)), minor=3)
    minors = {"config": 1, "monitor": 2} | make_capabilities(3, {7: 0, 8: 0}) | {"gpu4/gi1/access": 99}
    nodes = tuple(make_node(f"/dev/{name}") for name in ("nvidiactl", "nvidia3", "nvidia1"))
    return make_node_of(gpu, make_gpu(1)), DriverFiles(nodes=nodes, capability_minors=minors)


def access(instance: int) -> tuple[str, ...]:
    """Two files and two nodes, in the order of `list.c`."""
    place, minor = f"{CAPABILITIES}/gpu3/mig/gi{instance}", {7: 3, 8: 5}[instance]
    caps = (f"/dev/nvidia-caps/nvidia-cap{minor}", f"/dev/nvidia-caps/nvidia-cap{minor + 1}")
    return (f"{place}/access", f"{place}/ci0/access", *caps)


@pytest.mark.parametrize(
    ("ids", "paths"),
    [
        ("all", ("/dev/nvidia3", "/dev/nvidia1", *access(7), *access(8))),
        ("0:1", ("/dev/nvidia3", *access(8))),
        ("MIG-00000000-0000-0000-0000-000000000000", ("/dev/nvidia3", *access(7))),
        ("0", ("/dev/nvidia3",)),
    ],
)
def test_a_mig_device_is_its_gpu_and_its_capabilities(ids: str, paths: tuple[str, ...]) -> None:
    inventory, files = make_partitioned()
    assert plan_listing(Listing(devices=ids), inventory, files, DriverPlaces()) == ("/dev/nvidiactl", *paths)


def test_an_older_driver_has_capabilities_below_proc_alone() -> None:
    inventory, files = make_partitioned()
    older = replace(files, capability_minors={})
    listed = plan_listing(Listing(devices="0:1"), inventory, older, DriverPlaces())
    assert listed == ("/dev/nvidiactl", "/dev/nvidia3", *access(8)[:2])
    rights = plan_listing(Listing(devices="0", mig_config="all"), inventory, older, DriverPlaces())
    assert rights[2:] == (f"{CAPABILITIES}/mig/config", f"{CAPABILITIES}/gpu3")


@pytest.mark.parametrize(("right", "minor"), [("config", 1), ("monitor", 2)])
def test_rights_over_mig_are_those_of_the_chosen_gpus(right: str, minor: int) -> None:
    """The right's file and node, then the directory and every capability of each GPU that knows MIG."""
    inventory, files = make_partitioned()
    wanted = replace(Listing(devices="all"), **{f"mig_{right}": "all"})
    paths = plan_listing(wanted, inventory, files, DriverPlaces())
    assert paths == (
        *("/dev/nvidiactl", "/dev/nvidia3", "/dev/nvidia1"),
        *(f"{CAPABILITIES}/mig/{right}", f"/dev/nvidia-caps/nvidia-cap{minor}"),
        *(f"{CAPABILITIES}/gpu3", "/dev/nvidia-caps", *(f"/dev/nvidia-caps/nvidia-cap{each}" for each in range(3, 7))),
    )
    without = replace(wanted, devices="1")
    assert plan_listing(without, inventory, files, DriverPlaces()) == ("/dev/nvidiactl", "/dev/nvidia1")


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (Listing(devices="0,7"), "7: unknown device"),
        (Listing(devices="0:5"), "0:5: unknown device"),
        (Listing(devices="0", mig_config="0"), "0: unknown device for --mig-config"),
        (Listing(devices="0:1", mig_monitor="all"), "--mig-monitor is for whole GPUs"),
        (Listing(channels="x"), "x: unknown IMEX channel"),
    ],
)
def test_a_word_that_names_nothing_is_refused(wanted: Listing, said: str) -> None:
    inventory, files = make_partitioned()
    with pytest.raises(ListingRefused, match=said):
        plan_listing(wanted, inventory, files, DriverPlaces())
