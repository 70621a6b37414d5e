"""What the configuration gives every container with a GPU besides: device nodes and environment variables.

Owns the fate of a configured device node that the host lacks: containers start without the node, which is a condition.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from nodeagent.components.cdi.plan_devices import render_node
from nodeagent.components.cdi.spec import ContainerEdits
from nodeagent.config.sections.containers import ContainersSettings, ExtraDevice
from nodeagent.model.cdi import DriverFiles, DriverNode


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
