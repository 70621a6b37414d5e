"""Waits until a fraction's MPS daemon is ready: a container that starts earlier would find no server.

Owns the time limit. Starts no daemon: the component `mps` reads the daemons to run from the bindings.
"""

from typing import Final

import anyio

from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.model.errors import FractionsUnavailable
from nodeagent.model.journal import Binding
from nodeagent.model.mps import MpsAccess, MpsState
from nodeagent.rules.mps.fractions import explain_fraction_daemon, plan_fraction_access, plan_fraction_limits

DAEMON_SECONDS: Final = 3.0
"""Less than a whole start may take; after longer the kubelet asks again."""


class FractionDaemons:
    """Belongs to the component `fractions`."""

    def __init__(self, bus: Bus, live: LiveSettings) -> None:
        self._bus, self._live = bus, live

    def _read_state(self) -> MpsState | None:
        latest = self._bus.latest(MpsState)
        return latest.value if latest is not None else None

    async def wait_access(self, binding: Binding) -> MpsAccess:
        """Mounts and environment of a daemon's client.

        Raises:
            FractionsUnavailable: The daemon is not ready in time.
        """
        (fraction,) = binding.parts
        limits = plan_fraction_limits(binding, fraction.gpu)
        with anyio.move_on_after(DAEMON_SECONDS), self._bus.watch(MpsState, client="part daemons") as states:
            while explain_fraction_daemon(fraction.gpu, self._read_state(), limits):
                await anext(states)
        if reason := explain_fraction_daemon(fraction.gpu, self._read_state(), limits):
            raise FractionsUnavailable(f"{fraction.gpu}: {reason}; see `nodeagent mps`")
        return plan_fraction_access(self._live.now, binding)
