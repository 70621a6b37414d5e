"""The specification of a container with fractions of GPUs: names, and everything for the container, in one file."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from nodeagent.components.cdi.plan_devices import plan_gpu_devices
from nodeagent.components.cdi.plan_mounts import READ_ONLY
from nodeagent.components.cdi.plan_specs import SpecWishes, build_for
from nodeagent.components.cdi.spec import ContainerEdits, Device, Mount, Spec
from nodeagent.model.cdi import DriverFiles
from nodeagent.model.errors import NodeagentError
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import GpuUuid
from nodeagent.model.plugin import ContainerMount
from nodeagent.rules.cdi_names import PART_KIND

_WRITABLE = ("rw", "nosuid", "nodev", "noexec", "bind")
_MEMORY = "tmpfs"


class PartUndescribed(NodeagentError):
    """A GPU cannot be given to a container now."""

    def __init__(self, gpu: str, reason: str) -> None:
        super().__init__(f"{gpu} cannot be described to the container runtime: {reason}")
        self.gpu, self.reason = gpu, reason


def plan_part(
    names: Sequence[str],
    gpus: Sequence[GpuUuid],
    given: tuple[Iterable[ContainerMount], Mapping[str, str]],
    node: tuple[Inventory, DriverFiles, SpecWishes],
    common: ContainerEdits,
) -> Spec:
    """The file that gives each name the GPUs.

    Args:
        names: The containers' CDI names, unqualified.
        gpus: The GPUs.
        given: Further mounts, and the variables to set.
        node: Inventory, driver files and choices of the node.
        common: The edits for every container with a GPU, computed before a pod waits.

    Raises:
        PartUndescribed: A GPU has no device node.
    """
    inventory, files, wishes = node
    # A pod waits, and the other GPUs of the node are none of its business.
    meant = tuple(gpu for gpu in inventory.gpus if gpu.uuid in gpus)
    plan = plan_gpu_devices(replace(inventory, gpus=meant), files, hook=wishes.hook)
    edits = {device.name: device.container_edits for device in plan.devices}
    for gpu in gpus:
        if gpu not in edits:
            raise PartUndescribed(gpu, next((each for each in plan.left_out if gpu in each), "it is not on this node"))
    merged = _merge([edits[gpu] for gpu in gpus])
    mounts, environment = given
    variables = tuple(f"{key}={value}" for key, value in sorted(environment.items()))
    merged = replace(merged, env=(*merged.env, *variables), mounts=tuple(map(render_mount, mounts)))
    devices = tuple(Device(name=name, container_edits=merged) for name in names)
    return build_for(PART_KIND, devices, common, groups=wishes.groups)


def _merge(all_edits: Sequence[ContainerEdits]) -> ContainerEdits:
    return ContainerEdits(
        env=tuple(line for edits in all_edits for line in edits.env),
        device_nodes=tuple(dict.fromkeys(node for edits in all_edits for node in edits.device_nodes)),
        hooks=tuple(hook for edits in all_edits for hook in edits.hooks),
        additional_gids=tuple(sorted({gid for edits in all_edits for gid in edits.additional_gids})),
    )


def render_mount(mount: ContainerMount) -> Mount:
    """A mount in the format's form."""
    if mount.memory_bytes:
        # The container's processes make files there under any user, and no user removes another's files.
        limits = ("rw", "nosuid", "nodev", "noexec", "mode=1777", f"size={mount.memory_bytes}")
        return Mount(host_path=_MEMORY, container_path=mount.container_path, options=limits, type=_MEMORY)
    options = READ_ONLY if mount.read_only else _WRITABLE
    return Mount(host_path=mount.host_path, container_path=mount.container_path, options=options)
