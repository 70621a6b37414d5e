"""The services that nearly every component is given; one of each in a process."""

from typing import NamedTuple

from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions


class Services(NamedTuple):
    """The services, in the order in which constructors of components take them."""

    bus: Bus
    conditions: Conditions
    clock: Clock
    live: LiveSettings
