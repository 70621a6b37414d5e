"""Which resources this node offers, and which devices each of them has.

Owns the whole plan: the layout, then names, then sharing. Health is laid over it in `advertise`.
Refuses to give up for one device: what cannot be offered becomes a problem with its reason, and the rest is served.
"""

from nodeagent.components.deviceplugin.layout import plan_candidates
from nodeagent.components.deviceplugin.naming import NAME_MAX, plan_name
from nodeagent.components.deviceplugin.offer import Candidate, PluginDevice, Resource, ResourcePlan, ResourceProblem
from nodeagent.components.deviceplugin.sharing import share_devices
from nodeagent.config.schema import Settings
from nodeagent.config.sections.sharing import TimeSlicing
from nodeagent.config.selectors import select_gpus
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import ResourceName


def plan_resources(inventory: Inventory, settings: Settings) -> ResourcePlan:
    """What to offer for this inventory under these settings; the order of the inventory's parts makes no difference."""
    problems: list[ResourceProblem] = []
    gpus = select_gpus(inventory.gpus, settings.gpus.include, settings.gpus.exclude)
    sharing = _plan_sharing(settings, problems)
    named: dict[str, list[Candidate]] = {}
    for candidate in plan_candidates(gpus, settings.device_plugin.mig_strategy, problems):
        named.setdefault(plan_name(candidate, settings), []).append(candidate)
    devices: dict[str, list[PluginDevice]] = {}
    for base, candidates in named.items():
        for name, device in share_devices(base, candidates, sharing, settings.device_plugin.resource_prefix):
            devices.setdefault(name, []).append(device)
    resources = (
        Resource(
            name=ResourceName(name),
            devices=tuple(members),
            one_share_each=sharing is not None and sharing.failRequestsGreaterThanOne,
        )
        for name, members in sorted(devices.items())
    )
    return ResourcePlan(
        resources=tuple(resource for resource in resources if _has_valid_name(resource, problems)),
        problems=tuple(problems),
    )


def _plan_sharing(settings: Settings, problems: list[ResourceProblem]) -> TimeSlicing | None:
    """The section in force. The one for MPS, which would win, is refused: devices then stay whole."""
    if settings.sharing.mps is None:
        return settings.sharing.timeSlicing
    reason = (
        "sharing by MPS needs its control daemon, which nodeagent does not run yet: devices are offered whole;"
        " use sharing.timeSlicing or remove the section"
    )
    problems.append(ResourceProblem(subject="sharing.mps", reason=reason))
    return None


def _has_valid_name(resource: Resource, problems: list[ResourceProblem]) -> bool:
    if len(resource.name) <= NAME_MAX:
        return True
    reason = f"the name is longer than {NAME_MAX} characters: give it a shorter one"
    problems.append(ResourceProblem(subject=resource.name, reason=reason))
    return False
