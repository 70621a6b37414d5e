"""What a container sees of its limits: the file that says them, the one it tells its use in, and the library."""

from typing import Final

from nodeagent.model.parts import PLACE, LibraryFiles, PartFolder
from nodeagent.model.plugin import ContainerMount

PRELOAD: Final = "/etc/ld.so.preload"
"""Where a container's dynamic linker is told what to load before all else."""

OWN_BYTES: Final = 1 << 20
"""For the usage file of a container that shares a claim, several times: processes that start at once each make one."""


def plan_part_mounts(folder: PartFolder, library: LibraryFiles | None) -> tuple[ContainerMount, ...]:
    """The mounts; the library's are among them where it holds the container to its limits."""
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
