"""Finds the driver's shared libraries below a driver root.

Owns the searched directories (of all distributions, and those named in the root's own ld.so.cache) and the rule for the
driver's libraries: libraries with the driver's version in the name, and a few that are versioned apart.
Refuses foreign libraries; 32-bit libraries have a list of their own, and no specification has them. Names of libraries
are remembered by file, so that a second search reads no library.
"""

import os
import platform
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from nodeagent.edge.host.driver.elf import LibraryIdentity, read_library_identity
from nodeagent.edge.host.driver.ldcache import parse_library_cache
from nodeagent.edge.host.driver.library_search import CURRENT, DIRECTORIES
from nodeagent.edge.host.driver.roots import find_library, follow_in_root, parse_library_version
from nodeagent.edge.host.errors import HostError, describe_os_error
from nodeagent.edge.host.files.atomic_file import identify, read_bounded
from nodeagent.edge.host.files.pseudo_file import list_names
from nodeagent.model.cdi import DriverLibrary

_MACHINES: Final = {"x86_64": 62, "aarch64": 183}
_TRIPLETS: Final = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}
_SUBDIRECTORIES: Final = ("", "vdpau", CURRENT, f"{CURRENT}/vdpau")
_VERSIONED_APART: Final = re.compile(
    r"libnvidia-nvvm70\.so\.\d+|libnvidia-egl-(gbm|wayland2?|xcb|xlib)\.so\.\d+\.\d+[.\d]*"
)
_MODULE_DIRECTORIES: Final = ("nvidia/xorg", "xorg/modules/drivers", "xorg/modules/extensions")
_UPDATED_MODULES: Final = ("xorg/modules/updates/drivers", "xorg/modules/updates/extensions")
_MODULE: Final = re.compile(r"nvidia_drv\.so|libglxserver_nvidia\.so\.[\d.]+")
_DIRECTORIES_32: Final = (
    "usr/lib/i386-linux-gnu",
    f"usr/lib/i386-linux-gnu/{CURRENT}",
    "usr/lib32",
    "lib32",
    "usr/lib",
)
"""`/usr/lib` is the directory of 32-bit libraries where 64-bit libraries lie in `/usr/lib64`."""
_ELF32: Final = b"\x7fELF\x01"
_VERSION_SOURCES: Final = ("libnvidia-ml.so.1", "libcuda.so.1")

Identity = tuple[int, ...]


class _Found(NamedTuple):
    """A candidate in one directory."""

    path: Path
    links: tuple[str, ...]


def native_triplet() -> str:
    """The name of this machine's library directories in distributions of the Debian family."""
    return _TRIPLETS.get(platform.machine(), "")


class DriverLibraries:
    """Searches libraries repeatedly, and reads changed libraries only."""

    def __init__(self, *, machine: int | None = None) -> None:
        self._machine = machine if machine is not None else _MACHINES.get(platform.machine(), 0)
        self._identities: dict[str, tuple[Identity, LibraryIdentity | None]] = {}
        self._cache_seen: tuple[Identity, tuple[str, ...]] | None = None
        self.problems: list[str] = []
        """Unusable files of the last search, with reasons."""

    def read(self, root: Path, host_root: PurePosixPath) -> tuple[str, tuple[DriverLibrary, ...]]:
        """The driver's version and its libraries, by path; `host_root` is the root as the host names it."""
        self.problems = []
        version = read_driver_version(root)
        if not version:
            return "", ()
        libraries: dict[str, DriverLibrary] = {}
        for directory in self._list_directories(root):
            for found in _list_candidates(root, directory, version):
                library = self._describe(found, root, host_root)
                if library is not None:
                    libraries.setdefault(library.path, library)
        return version, tuple(libraries[path] for path in sorted(libraries))

    def _list_directories(self, root: Path) -> list[Path]:
        """Directories of libraries, each once although many names lead to it."""
        places = [f"{base}/{below}" for base in DIRECTORIES for below in _SUBDIRECTORIES]
        places += [
            f"{base}/{below}"
            for base in (*DIRECTORIES, "usr/lib", "usr/X11R6/lib", "usr/X11R6/lib64")
            for below in (*_MODULE_DIRECTORIES, *_UPDATED_MODULES)
        ]
        places += self._read_cached_directories(root)
        found = (follow_in_root(root, place) for place in places)
        return list(dict.fromkeys(place for place in found if place is not None and place.is_dir()))

    def _read_cached_directories(self, root: Path) -> tuple[str, ...]:
        path = follow_in_root(root, "etc/ld.so.cache")
        identity = identify(path) if path is not None else ()
        if path is None or not identity:
            return ()
        if self._cache_seen is None or self._cache_seen[0] != identity:
            self._cache_seen = (identity, self._parse_cached_directories(path))
        return self._cache_seen[1]

    def _parse_cached_directories(self, path: Path) -> tuple[str, ...]:
        try:
            libraries = parse_library_cache(read_bounded(path))
        except HostError as error:
            # The usual directories are searched all the same.
            self.problems.append(str(error))
            return ()
        wanted = ("libcuda.so", "libnvidia-", "libGLX_nvidia.so")
        directories = {str(PurePosixPath(each.path).parent) for each in libraries if each.name.startswith(wanted)}
        return tuple(sorted(directory for directory in directories if directory.startswith("/")))

    def _describe(self, found: _Found, root: Path, host_root: PurePosixPath) -> DriverLibrary | None:
        inside = f"/{found.path.relative_to(root)}"
        if not inside.isprintable():
            self.problems.append(f"{inside!a}: its name is not printable")
            return None
        try:
            identity = self._read_identity(found.path)
        except OSError as error:
            self.problems.append(f"{inside}: {describe_os_error(error)}")
            return None
        if identity is None or identity.machine != self._machine:
            return None
        return DriverLibrary(
            path=inside, host_path=str(host_root / inside[1:]), soname=identity.soname, links=found.links
        )

    def _read_identity(self, path: Path) -> LibraryIdentity | None:
        now = identify(path)
        known = self._identities.get(str(path))
        if known is None or known[0] != now:
            known = (now, read_library_identity(path))
            self._identities[str(path)] = known
        return known[1]


def read_driver_version(root: Path) -> str:
    """The version in the names of the driver's own libraries; empty where there is no driver."""
    versions = (parse_library_version(find_library(root, name)) for name in _VERSION_SOURCES)
    return next((version for version in versions if version), "")


def _list_candidates(root: Path, directory: Path, version: str) -> Iterator[_Found]:
    """The driver's files in one directory, each as the real file with the links to the file beside it."""
    try:
        with os.scandir(directory) as entries:
            names = {entry.name: entry.is_symlink() for entry in entries}
    except OSError:
        # The directory has vanished since the search: no library is there.
        return
    for name, is_link in names.items():
        if not _is_the_drivers(name, version):
            continue
        path = directory / name
        real = follow_in_root(root, str(path.relative_to(root))) if is_link else path
        if real is not None and os.path.isfile(real):  # noqa: PTH113  # a path object's own method costs twice the call
            yield _Found(real, _list_links(directory, names, name))


def _is_the_drivers(name: str, version: str) -> bool:
    if name.startswith("lib") and name.endswith(f".so.{version}"):
        return True
    return bool(_VERSIONED_APART.fullmatch(name) or _MODULE.fullmatch(name))


def _list_links(directory: Path, names: Iterable[str], name: str) -> tuple[str, ...]:
    """`libcuda.so` beside `libcuda.so.V`, where the host has such a link: some programs load libraries by the link."""
    plain = f"{name.partition('.so.')[0]}.so"
    is_there = plain != name and plain in names and (directory / plain).is_symlink()
    return (plain,) if is_there else ()


def list_libraries32(root: Path, version: str) -> tuple[str, ...]:
    """The 32-bit libraries of this version of the driver, as paths below the driver's root."""
    return tuple(_list_libraries32(root, version)) if version else ()


def _list_libraries32(root: Path, version: str) -> Iterator[str]:
    for place in _DIRECTORIES_32:
        directory = follow_in_root(root, place)
        for name in list_names(directory) if directory is not None else ():
            path = f"/{place}/{name}"
            real = follow_in_root(root, path)
            if name.startswith("lib") and name.endswith(f".so.{version}") and real is not None and _is_32_bit(real):
                yield f"/{real.relative_to(root)}"


def _is_32_bit(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_ELF32)) == _ELF32
    except OSError:
        return False
