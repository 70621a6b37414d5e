"""Preferred allocation on a person's request: by index, for any made-up request.

Owns the names of devices on a command line.

Refuses names without a device: a person wants to know of a slip.
"""

from collections.abc import Collection, Sequence

from nodeagent.config.schema import Settings
from nodeagent.model.errors import GpuUnknown, RequestInvalid
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import DeviceId
from nodeagent.model.wording import suggest
from nodeagent.rules.offer.devices import Resource
from nodeagent.rules.offer.resources import plan_resources
from nodeagent.rules.placement.prefer import Explanation, Group, Preference
from nodeagent.rules.placement.topology import plan_topology


def explain_preference(
    inventory: Inventory,
    settings: Settings,
    *,
    size: int,
    available: Sequence[str] = (),
    must_include: Sequence[str] = (),
    resource: str = "",
    free: Collection[DeviceId] | None = None,
) -> Explanation:
    """The answer that the kubelet would get for the request, and the reasons.

    `available` names devices by index, MIG index, UUID or device id; none named means the devices in `free`, and all
    where these are unknown. Without `resource` the only one is meant, or the first by name.

    Raises:
        GpuUnknown: a name means no device of the resource.
        RequestInvalid: this node does not offer the resource.
    """
    offered = plan_resources(inventory, settings).resources
    chosen = next((each for each in offered if resource in ("", each.name)), None)
    if not offered and not resource:
        return Explanation(devices=(), rule=f"a pod that asks for {size} waits: this node offers nothing")
    if chosen is None:
        names = [each.name for each in offered]
        hint = f"this node offers {', '.join(names) or 'nothing'}{suggest(resource, names)}"
        raise RequestInvalid(resource or "any GPU resource", hint)
    preference = Preference(chosen, plan_topology(inventory), settings.device_plugin.shared_allocation_policy)
    required = find_devices(chosen, must_include)
    offered_now = tuple(device.id for device in chosen.devices if free is None or device.id in free)
    among = find_devices(chosen, available) if available else offered_now
    lacking = [device for device in required if device not in among]
    if size > len(among) or lacking:
        rule = f"a pod that asks for {size} waits: {len(among)} of {len(chosen.devices)} are free and healthy"
        return Explanation(devices=(), rule=f"{rule}, {', '.join(lacking)} is not" if lacking else rule)
    return preference.explain(among, required, size)


def find_devices(resource: Resource, names: Sequence[str]) -> tuple[DeviceId, ...]:
    """The devices with these names, each replica of a device named as a whole.

    Raises:
        GpuUnknown: a name means no device.
    """
    found: list[DeviceId] = []
    for name in names:
        meant = [device.id for device in resource.devices if name in (device.id, device.uuid, device.index)]
        if not meant:
            raise GpuUnknown(name, tuple(dict.fromkeys(device.index for device in resource.devices)))
        found.extend(meant)
    return tuple(dict.fromkeys(found))


def render_explanation(explanation: Explanation) -> tuple[str, ...]:
    """The explanation in lines of text."""
    answer = ", ".join(explanation.devices) or "none"
    lines = [f"devices    {answer}", f"because    {explanation.rule}"]
    if explanation.choice is not None:
        lines.append(f"score      {_render_scores(explanation.choice)}")
    if explanation.runner_up is not None:
        lines.append(f"runner-up  {', '.join(explanation.runner_up.devices)}")
        lines.append(f"           {_render_scores(explanation.runner_up)}")
    if not explanation.exact:
        lines.append("           the links form no hierarchy and are too many to search: there may be a better group")
    return tuple(lines)


def _render_scores(group: Group) -> str:
    return f"{group.score} within the group, {group.total} with the groups that can be made of the rest"
