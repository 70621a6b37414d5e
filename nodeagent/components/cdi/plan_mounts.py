"""The driver's files in a container, and their paths there.

Owns the way without hooks. Programs ask for a library by its linked name (the SONAME), so each library is mounted under
the SONAME, in directories searched by the image's dynamic linker although the linker cache lists nothing there:
`/usr/lib` (musl, Debian, Arch), `/usr/lib64` (Fedora, SUSE), and Debian's own directory, because images with a stale
copy of the driver have it there and their linker cache leads to it.
With a hook for the linker cache, each library is mounted once and the hook makes the names.
"""

from collections.abc import Iterable, Iterator

from nodeagent.components.cdi.spec import Mount
from nodeagent.model.cdi import DriverFile, DriverFiles, DriverLibrary

READ_ONLY = ("ro", "nosuid", "nodev", "rbind", "rprivate")
SOCKET = ("nosuid", "nodev", "rbind", "rprivate", "noexec")

EVERYWHERE = ("/usr/lib64", "/usr/lib")
"""Directories that one or the other dynamic linker searches by itself."""

ONLY_FOR_STORAGE = frozenset({"/etc/cufile.json", "/run/udev"})
"""Files that belong to GPUDirect Storage alone."""

_MODULES = ("/xorg/", "/nvidia/xorg")
_VIDEO = "/vdpau"
"""Plug-ins opened by path: no dynamic linker is asked for X.Org's, but some players ask for VDPAU's."""

_EXTRA_NAMES = {
    "libcuda.so": ("libcuda.so",),
    "libnvidia-opticalflow.so": ("libnvidia-opticalflow.so",),
    "libGLX_nvidia.so": ("libGLX_indirect.so.0",),
    "libnvidia-allocator.so": ("gbm/nvidia-drm_gbm.so",),
    "libglxserver_nvidia.so": ("libglxserver_nvidia.so",),
    "libnvidia-vulkan-producer.so": ("libnvidia-vulkan-producer.so",),
}
"""Names under which programs open a library although no package makes a link for it everywhere."""


_VIDEO_PLUGIN = "libvdpau_nvidia.so"
_TRITON = "TRITON_LIBCUDA_PATH"
_DIRECTORIES = "NVIDIA_CTK_LIBCUDA_DIR"


def plan_environment(files: DriverFiles, *, hooks: bool) -> tuple[str, ...]:
    """The directories of the driver's libraries, in the variables of NVIDIA's toolkit.

    Without a linker cache that lists libcuda, Triton finds libcuda by a variable alone: Triton asks `ldconfig -p`.
    """
    version = f".so.{files.version}"
    own = (each for each in files.libraries if each.name.endswith(version) and is_linked(each))
    directories = ":".join(dict.fromkeys(each.directory for each in own))
    known = [each.directory for each in files.libraries if each.name.startswith("libcuda.so.")]
    triton = () if hooks or not known else (f"{_TRITON}={known[0]}",)
    return (*((f"{_DIRECTORIES}={directories}",) if directories else ()), *triton)


def plan_mounts(files: DriverFiles, *, hooks: bool) -> tuple[Mount, ...]:
    """Every mount, outer directories first as runtimes want them, each place once."""
    wanted = [*_plan_library_mounts(files, hooks=hooks), *_plan_file_mounts(files)]
    places: dict[str, Mount] = {}
    for mount in wanted:
        places.setdefault(mount.container_path, mount)
    return tuple(sorted(places.values(), key=lambda mount: (mount.container_path.count("/"), mount.container_path)))


def list_links(library: DriverLibrary) -> tuple[str, ...]:
    """Every other name of a library for programs, relative to the library's directory."""
    stem = f"{library.name.partition('.so')[0]}.so"
    names = (library.soname, *library.links, *_EXTRA_NAMES.get(stem, ()))
    return tuple(name for name in dict.fromkeys(names) if name and name != library.name)


def list_plugin_places(library: DriverLibrary, files: DriverFiles) -> tuple[str, ...]:
    """The paths where other distributions open the driver's VDPAU plug-in; Debian's driver keeps it elsewhere."""
    if not library.name.startswith(f"{_VIDEO_PLUGIN}."):
        return ()
    places = (f"{directory}/vdpau" for directory in _list_default_directories(files))
    return tuple(f"{place}/{_VIDEO_PLUGIN}.1" for place in places if place != library.directory)


def list_library_directories(files: DriverFiles) -> tuple[str, ...]:
    """The directories of libraries for a linker cache."""
    return tuple(sorted({library.directory for library in files.libraries if not _is_module(library)}))


def _plan_library_mounts(files: DriverFiles, *, hooks: bool) -> Iterator[Mount]:
    for library in files.libraries:
        yield _mount(library, library.path)
    if hooks:
        return
    for library in files.libraries:
        yield from (_mount(library, f"{library.directory}/{name}") for name in list_links(library))
        yield from (_mount(library, place) for place in list_plugin_places(library, files))
    for library in filter(is_linked, files.libraries):
        name = library.soname or library.name
        yield from (_mount(library, f"{directory}/{name}") for directory in _list_default_directories(files))


def _list_default_directories(files: DriverFiles) -> tuple[str, ...]:
    return (*((f"/usr/lib/{files.triplet}",) if files.triplet else ()), *EVERYWHERE)


def _plan_file_mounts(files: DriverFiles) -> Iterable[Mount]:
    for each in files.files:
        if each.path not in ONLY_FOR_STORAGE:
            yield _mount(each, each.path)
    for socket in files.sockets:
        yield Mount(host_path=socket.host_path, container_path=socket.path, options=SOCKET)


def _is_module(library: DriverLibrary) -> bool:
    return any(fraction in f"{library.directory}/" for fraction in _MODULES)


def is_linked(library: DriverLibrary) -> bool:
    """Whether dynamic linkers look for the library by its name; plug-ins are opened by path."""
    return not _is_module(library) and not library.directory.endswith(_VIDEO)


def _mount(file: DriverFile, place: str) -> Mount:
    return Mount(host_path=file.host_path, container_path=place, options=READ_ONLY)
