"""Waits until a fraction's MPS daemon is ready: a container that starts earlier would find no server.

Owns the time limit. Starts no daemon: the component `mps` reads the daemons to run from the bindings.
"""

from typing import Final

import anyio

from nodeagent.config.schema import Settings
from nodeagent.core.channels.bus import Bus
from nodeagent.model.errors import FractionsUnavailable
from nodeagent.model.journal import Binding
from nodeagent.model.mps import MpsAccess, MpsState
from nodeagent.rules.mps.fractions import explain_fraction_daemon, plan_fraction_access, plan_fraction_limits

DAEMON_SECONDS: Final = 3.0
"""Less than a whole start may take; after longer the kubelet asks again."""


async def wait_access(bus: Bus, settings: Settings, binding: Binding) -> MpsAccess:
    """Mounts and environment of a daemon's client.

    Raises:
        FractionsUnavailable: The daemon is not ready in time.
    """
    (fraction,) = binding.parts
    limits = plan_fraction_limits(binding, fraction.gpu)
    with anyio.move_on_after(DAEMON_SECONDS), bus.watch(MpsState, client="part daemons") as states:
        while explain_fraction_daemon(fraction.gpu, bus.read(MpsState), limits):
            await anext(states)
    if reason := explain_fraction_daemon(fraction.gpu, bus.read(MpsState), limits):
        raise FractionsUnavailable(f"{fraction.gpu}: {reason}; see `nodeagent mps`")
    return plan_fraction_access(settings, binding)
