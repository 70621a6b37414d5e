"""What the section `containers` of the configuration gives: places of the driver's files, device nodes, variables.

Owns the fate of a configured device node that the host lacks: containers start without the node, which is a condition.
"""

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from nodeagent.components.cdi.plan_devices import render_node
from nodeagent.components.cdi.plan_mounts import is_linked
from nodeagent.components.cdi.spec import ContainerEdits
from nodeagent.config.sections.containers import ContainersSettings, ExtraDevice, FileLayout
from nodeagent.model.cdi import DriverFiles, DriverNode
from nodeagent.model.nvidia import IMAGE_LIBRARIES, IMAGE_PROGRAMS

_PROGRAMS: Final = "/usr/bin"


def place_files(files: DriverFiles, layout: FileLayout) -> DriverFiles:
    """The driver's files with all places of the layout; plug-ins are opened by path, and keep to their one place."""
    if layout == "standard":
        return files
    libraries = [replace(each, path=f"{IMAGE_LIBRARIES}/{each.name}") for each in files.libraries if is_linked(each)]
    programs = [
        replace(each, path=f"{IMAGE_PROGRAMS}/{each.name}") for each in files.files if each.directory == _PROGRAMS
    ]
    return replace(files, libraries=(*files.libraries, *libraries), files=(*files.files, *programs))


def plan_extra_edits(settings: ContainersSettings, files: DriverFiles) -> ContainerEdits:
    """The configured variables, and the existing ones of the configured device nodes."""
    pairs = tuple(_pair(settings, files))
    return ContainerEdits(
        env=tuple(f"{name}={value}" for name, value in sorted(settings.extra_environment.items())),
        device_nodes=tuple(render_node(replace(node, path=device.place), device.permissions) for device, node in pairs),
        additional_gids=tuple(sorted({node.group for _, node in pairs} - {0})),
    )


def list_missing_devices(settings: ContainersSettings, files: DriverFiles) -> tuple[str, ...]:
    """The paths of configured device nodes that the host lacks; none in a simulation, which touches no host."""
    found = {node.path for node in files.extra_nodes}
    hosts = [str(device.host) for device in settings.extra_devices if not files.made_up]
    return tuple(dict.fromkeys(path for path in hosts if path not in found))


def _pair(settings: ContainersSettings, files: DriverFiles) -> Iterator[tuple[ExtraDevice, DriverNode]]:
    nodes = {node.path: node for node in files.extra_nodes}
    for device in settings.extra_devices:
        node = nodes.get(str(device.host))
        if node is not None:
            yield device, node
