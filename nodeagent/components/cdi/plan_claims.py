"""The specification of a claim: a name for each device, and everything for its container, in a single file."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from nodeagent.components.cdi.plan_devices import plan_gpu_devices
from nodeagent.components.cdi.plan_specs import FractionUndescribed, SpecOptions, build_for, render_mount
from nodeagent.components.cdi.spec import ContainerEdits, Device, Spec
from nodeagent.model.cdi import DriverFiles
from nodeagent.model.gpu import Inventory
from nodeagent.model.ports import ClaimedSpec
from nodeagent.rules.cdi_names import CLAIM_KIND, name_claim_file

PREFIX = name_claim_file("").removesuffix(".json")
"""How the files of all claims begin."""


def plan_claim_spec(
    claimed: Sequence[ClaimedSpec], node: tuple[Inventory, DriverFiles, SpecOptions], common: ContainerEdits
) -> Spec:
    """The file that gives each name its device; `common` is computed before a pod waits.

    Raises:
        FractionUndescribed: A device has no device node.
    """
    inventory, files, requests = node
    # A pod waits, and the other GPUs of the node are none of its business.
    meant = dict.fromkeys(gpu for each in claimed if (gpu := inventory.find_gpu(each.uuid)) is not None)
    plan = plan_gpu_devices(replace(inventory, gpus=tuple(meant)), files, hook=requests.hook)
    edits = {device.name: device.container_edits for device in plan.devices}
    devices: dict[str, Device] = {}
    for each in claimed:
        if each.uuid not in edits:
            reason = next((one for one in plan.left_out if each.uuid and each.uuid in one), "it is not on this node")
            raise FractionUndescribed(each.uuid or each.name, reason)
        own = edits[each.uuid]
        environment = tuple(f"{key}={value}" for key, value in sorted(each.environment.items()))
        mounts = tuple(map(render_mount, each.mounts))
        own = replace(own, env=(*own.env, *environment), mounts=(*own.mounts, *mounts))
        devices[each.name] = Device(name=each.name, container_edits=own)
    return build_for(CLAIM_KIND, tuple(devices.values()), common, groups=requests.groups)


def list_stale(names: Iterable[str], uids: Iterable[str]) -> tuple[str, ...]:
    """The files of claims other than the given claims."""
    kept = {name_claim_file(uid) for uid in uids}
    return tuple(sorted(name for name in names if name.startswith(PREFIX) and name not in kept))
