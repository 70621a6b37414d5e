"""The mounts of a container for its limits: limits file, usage file, and library."""

from typing import Final

from nodeagent.model.parts import PLACE, LibraryFiles, PartFolder
from nodeagent.model.plugin import ContainerMount

PRELOAD: Final = "/etc/ld.so.preload"
"""The file by which a container's dynamic linker loads libraries before all others."""

OWN_BYTES: Final = 1 << 20
"""For the usage file of a container that shares a claim, several times: processes that start at once each make one."""


def plan_part_mounts(folder: PartFolder, library: LibraryFiles | None) -> tuple[ContainerMount, ...]:
    """The mounts; the library's are among them where the library enforces the limits."""
    mounts = [ContainerMount(container_path=f"{PLACE}/limits", host_path=folder.limits)]
    if folder.shared:
        mounts += [
            ContainerMount(container_path=f"{PLACE}/shared", host_path=folder.shared, read_only=False),
            ContainerMount(container_path=f"{PLACE}/own", memory_bytes=OWN_BYTES, read_only=False),
        ]
    else:
        mounts.append(ContainerMount(container_path=f"{PLACE}/usage", host_path=folder.usage, read_only=False))
    if library is not None:
        name = library.library.rpartition("/")[2]
        mounts += [
            ContainerMount(container_path=f"{PLACE}/{name}", host_path=library.library),
            ContainerMount(container_path=PRELOAD, host_path=library.preload),
        ]
    return tuple(mounts)
