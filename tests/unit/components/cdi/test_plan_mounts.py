"""Which files are seen where in a container."""

import pytest

from nodeagent.components.cdi.plan_extras import place_files
from nodeagent.components.cdi.plan_mounts import (
    READ_ONLY,
    SOCKET,
    list_library_directories,
    list_links,
    plan_environment,
    plan_mounts,
)
from nodeagent.model.cdi import DriverFiles, DriverLibrary
from tests.support.files.driver_files import DIRECTORY, VERSION, make_file, make_files, make_library


def read_places(files: DriverFiles, *, hooks: bool = False) -> dict[str, str]:
    return {mount.container_path: mount.host_path for mount in plan_mounts(files, hooks=hooks)}


def test_a_library_is_seen_under_its_soname_where_every_linker_looks() -> None:
    """The linkers of all distributions, glibc or musl, find it without a cache."""
    places = read_places(make_files())
    real = f"{DIRECTORY}/libcuda.so.{VERSION}"
    for directory in (DIRECTORY, "/usr/lib64", "/usr/lib"):
        assert places[f"{directory}/libcuda.so.1"] == real


def test_a_library_is_seen_under_its_own_name_and_its_links() -> None:
    """The name with the version and the name that CUDA programs load by hand lead to the same file."""
    places = read_places(make_files())
    assert places[f"{DIRECTORY}/libcuda.so.{VERSION}"] == places[f"{DIRECTORY}/libcuda.so"]


def test_a_place_has_one_file() -> None:
    """A library's own place is not taken over by another one's alias."""
    thirty_two = DriverLibrary(path="/usr/lib/libcuda.so.1", host_path="/other/libcuda.so.1", soname="libcuda.so.1")
    files = make_files(libraries=(make_library("libcuda"), thirty_two))
    assert read_places(files)["/usr/lib/libcuda.so.1"] == "/other/libcuda.so.1"
    places = [mount.container_path for mount in plan_mounts(files, hooks=False)]
    assert len(places) == len(set(places))


def test_host_paths_carry_the_driver_root_and_container_paths_do_not() -> None:
    """A driver container's files are seen where an installed driver's would be."""
    places = read_places(make_files(root="/run/nvidia/driver"))
    assert places["/usr/bin/nvidia-smi"] == "/run/nvidia/driver/usr/bin/nvidia-smi"
    assert all(path.startswith("/run/nvidia/driver/") for path in places.values())


def test_a_library_without_soname_is_shown_by_its_file_name() -> None:
    """Nothing is mounted on a directory when a library says no name."""
    nameless = DriverLibrary(path=f"{DIRECTORY}/libnvidia-x.so.1", host_path="/x", soname="")
    places = read_places(make_files(libraries=(nameless,), files=()))
    assert set(places) == {f"{place}/libnvidia-x.so.1" for place in (DIRECTORY, "/usr/lib64", "/usr/lib")}


def test_plugins_stay_where_they_are() -> None:
    """Modules of X.Org and VDPAU are opened by path; the linker's cache lists VDPAU's, as NVIDIA's does."""
    module = make_library("libglxserver_nvidia", directory="/usr/lib/xorg/modules/extensions")
    video = make_library("libvdpau_nvidia", directory=f"{DIRECTORY}/vdpau")
    files = make_files(libraries=(module, video), files=())
    everywhere = {f"{place}/vdpau" for place in (DIRECTORY, "/usr/lib64", "/usr/lib")}
    assert {place.rpartition("/")[0] for place in read_places(files)} == {module.directory, *everywhere}
    assert read_places(files)["/usr/lib64/vdpau/libvdpau_nvidia.so.1"] == video.host_path
    assert list_library_directories(files) == (f"{DIRECTORY}/vdpau",)


def test_a_foreign_machine_has_no_debian_directory() -> None:
    """Without a known triplet only the common directories are used."""
    places = read_places(make_files(triplet="", files=()))
    assert {place.rpartition("/")[0] for place in places} == {DIRECTORY, "/usr/lib64", "/usr/lib"}


def test_with_hooks_each_library_is_mounted_once() -> None:
    """The hook makes the other names."""
    files = make_files()
    assert len(plan_mounts(files, hooks=True)) == len(files.libraries) + len(files.files)


def test_the_allocator_is_the_gbm_backend() -> None:
    """GBM opens the allocator library by a name of its own, one directory further down."""
    assert "gbm/nvidia-drm_gbm.so" in list_links(make_library("libnvidia-allocator"))


def test_links_of_the_host_are_kept_once() -> None:
    """A link that is also in the list of extra names is one name."""
    library = DriverLibrary(path="/l/libcuda.so.1.1", host_path="/x", soname="libcuda.so.1", links=("libcuda.so",))
    assert list_links(library) == ("libcuda.so.1", "libcuda.so")


def test_mounts_are_in_order_of_depth() -> None:
    """Outer places come first, as runtimes want them."""
    depths = [mount.container_path.count("/") for mount in plan_mounts(make_files(), hooks=False)]
    assert depths == sorted(depths)


def test_sockets_are_writable_and_everything_else_is_not() -> None:
    """Connecting to a daemon needs no read-only flag on its socket."""
    socket = make_file("/run/nvidia-persistenced/socket")
    mounts = {mount.container_path: mount for mount in plan_mounts(make_files(sockets=(socket,)), hooks=False)}
    assert mounts.pop(socket.path).options == SOCKET
    assert {mount.options for mount in mounts.values()} == {READ_ONLY}


def test_storage_files_are_not_for_every_container() -> None:
    """The configuration of GPUDirect Storage goes with its own kind."""
    files = make_files(files=(make_file("/etc/cufile.json"), make_file("/run/udev")))
    assert {"/etc/cufile.json", "/run/udev"} & set(read_places(files)) == set()


def test_without_a_linker_cache_triton_is_told_where_libcuda_is() -> None:
    """It asks `ldconfig -p`, which knows nothing of mounts."""
    where = f"NVIDIA_CTK_LIBCUDA_DIR={DIRECTORY}"
    assert plan_environment(make_files(), hooks=False) == (where, f"TRITON_LIBCUDA_PATH={DIRECTORY}")
    assert plan_environment(make_files(), hooks=True) == (where,)
    assert plan_environment(make_files(libraries=()), hooks=False) == ()


def test_containers_are_told_each_directory_of_the_drivers_libraries_once() -> None:
    """Plug-ins and what has a version of its own say nothing of where the driver is."""
    names = {"/a": ("libcuda", "libnvidia-ml"), "/b": ("libnvidia-tls",), "/b/vdpau": ("libvdpau_nvidia",)}
    libraries = [make_library(name, directory=place) for place, stems in names.items() for name in stems]
    apart = DriverLibrary(path="/c/libnvidia-egl-gbm.so.1.1.0", host_path="/x", soname="libnvidia-egl-gbm.so.1")
    files = make_files(libraries=(*libraries, apart))
    assert plan_environment(files, hooks=True) == ("NVIDIA_CTK_LIBCUDA_DIR=/a:/b",)


@pytest.mark.parametrize("hooks", [False, True])
def test_the_layout_of_gpu_images_is_beside_the_usual_places(hooks: bool) -> None:
    """Libraries and programs are seen there too, plug-ins and firmware are not, and no usual place is lost."""
    plugin = make_library("libglxserver_nvidia", directory="/usr/lib/xorg/modules/extensions")
    firmware = f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin"
    files = make_files(
        libraries=(make_library("libcuda"), plugin), files=(make_file("/usr/bin/nvidia-smi"), make_file(firmware))
    )
    assert place_files(files, "standard") is files
    usual = read_places(files, hooks=hooks)
    places = read_places(place_files(files, "usr_local_nvidia"), hooks=hooks)
    added = {place: source for place, source in places.items() if place not in usual}
    names = {f"libcuda.so.{VERSION}", *(() if hooks else ("libcuda.so.1", "libcuda.so"))}
    libraries = {f"/usr/local/nvidia/lib64/{name}": f"{DIRECTORY}/libcuda.so.{VERSION}" for name in names}
    assert added == libraries | {"/usr/local/nvidia/bin/nvidia-smi": "/usr/bin/nvidia-smi"}
    assert usual.items() <= places.items()
