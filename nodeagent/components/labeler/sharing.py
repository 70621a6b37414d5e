"""What the labels say about sharing: the strategy and the shares of each device, as the device plugin offers them.

Owns how several devices are said in NVIDIA's labels, which have room for one number of shares: where devices are not
alike, the labels promise what holds for each of them.
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
    """The fewest shares that one of these devices has; sharing is told as soon as one of them is shared."""
    if not devices:
        return NOT_OFFERED
    shared = [each for each in devices if each.replicas > 1]
    return Shares(
        replicas=min(each.replicas for each in devices),
        strategy=shared[0].strategy if shared else "none",
        suffix="-SHARED" if any(not each.renamed for each in shared) else "",
    )
