"""What the labels say about sharing: the strategy and the shares of each device, as the device plugin offers them.

Owns the reading of the `sharing` section for labels. MPS is labelled once devices are shared that way: until its
control daemon is run, the device plugin offers them whole, and a label that said otherwise would place pods wrongly.
"""

from nodeagent.config.schema import Settings
from nodeagent.config.sections.sharing import DEFAULT_PREFIX, SharedResource, TimeSlicing
from nodeagent.config.selectors import fits_pattern
from nodeagent.model.values import Value


class Shares(Value, frozen=True):
    """How often each device of one resource is offered."""

    replicas: int = 1
    strategy: str = "none"
    suffix: str = ""
    """What the product's name gets: nothing where the resource has another name to tell it by."""


WHOLE = Shares()


def plan_shares(settings: Settings, resource: str, model: str) -> Shares:
    """The shares of a resource, by its name before sharing and without its domain, on GPUs of this model."""
    sharing = settings.sharing.timeSlicing if settings.sharing.mps is None else None
    if sharing is None:
        return WHOLE
    entry = next((each for each in sharing.resources if _fits(each, settings, resource, model)), None)
    if entry is None:
        return WHOLE
    return Shares(
        replicas=entry.replicas, strategy="time-slicing", suffix="" if _renames(sharing, entry) else "-SHARED"
    )


def _renames(sharing: TimeSlicing, entry: SharedResource) -> bool:
    return sharing.renameByDefault or entry.rename is not None


def _fits(entry: SharedResource, settings: Settings, resource: str, model: str) -> bool:
    domain = entry.name.rpartition("/")[0]
    if entry.base_name != resource or domain not in ("", DEFAULT_PREFIX, settings.device_plugin.resource_prefix):
        return False
    return not entry.models or any(fits_pattern(model, pattern) for pattern in entry.models)
