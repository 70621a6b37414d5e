"""How resources are called.

Owns the prefix rule and the naming patterns.
"""

from collections.abc import Sequence
from typing import Final

from nodeagent.config.schema import Settings
from nodeagent.config.sections.sharing import DEFAULT_PREFIX, ResourcePattern
from nodeagent.model.ids import ResourceName
from nodeagent.rules.mig.profiles import plain_profile
from nodeagent.rules.offer.devices import Candidate
from nodeagent.rules.selectors import fits_pattern

NAME_MAX: Final = 63
_WHOLE_GPU: Final = "gpu"


def full_name(name: str, prefix: str) -> ResourceName:
    """The name under the node's prefix; a domain other than NVIDIA's own is taken as meant."""
    domain, slash, base = name.rpartition("/")
    return ResourceName(name if slash and domain != DEFAULT_PREFIX else f"{prefix}/{base}")


def plan_name(candidate: Candidate, settings: Settings) -> ResourceName:
    """The full name of the device's resource, before sharing."""
    if candidate.mig is None:
        name = _find_name(candidate.gpu.name, settings.resources.gpus, _WHOLE_GPU)
    else:
        like_gpu = settings.device_plugin.mig_strategy == "single"
        default = _WHOLE_GPU if like_gpu else f"mig-{plain_profile(candidate.mig.profile)}"
        name = _find_name(candidate.mig.profile, settings.resources.mig, default)
    return full_name(name, settings.device_plugin.resource_prefix)


def _find_name(subject: str, patterns: Sequence[ResourcePattern], default: str) -> str:
    return next((entry.name for entry in patterns if fits_pattern(subject, entry.pattern)), default)
