"""Labels about sharing: the strategy and the replicas of each device, as the device plugin offers them.

Owns the description of several devices in NVIDIA's labels, which have room for one number of replicas: for unlike
devices the labels promise the smallest number.
"""

from collections.abc import Sequence

from nodeagent.model.values import Value
from nodeagent.rules.offer.devices import Offered


class Shares(Value, frozen=True):
    """How often each of the devices is offered at least."""

    replicas: int = 0
    strategy: str = "none"
    suffix: str = ""
    """What the product's name gets: nothing where the resource has another name to tell it by."""


NOT_OFFERED = Shares()


def describe_shares(devices: Sequence[Offered]) -> Shares:
    """The fewest replicas of a device; sharing is labelled as soon as one device is shared."""
    if not devices:
        return NOT_OFFERED
    shared = [each for each in devices if each.replicas > 1]
    return Shares(
        replicas=min(each.replicas for each in devices),
        strategy=shared[0].strategy if shared else "none",
        suffix="-SHARED" if any(not each.renamed for each in shared) else "",
    )
