"""When the kubelet knows all that is offered in parts."""

from collections.abc import Callable, Collection

from nodeagent.core.channels.bus import Bus
from nodeagent.model.ids import ResourceName
from nodeagent.model.plugin import PluginState


async def tell_known(bus: Bus, list_offered: Callable[[], Collection[ResourceName]], tell: Callable[[], None]) -> None:
    """Tell it once the kubelet has taken each of these resources."""
    with bus.watch(PluginState, client="fractions told") as states:
        async for state in states:
            known = {each.name for each in state.value.resources if each.registered}
            if known.issuperset(list_offered()):
                tell()
                return
