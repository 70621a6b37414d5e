"""Answers scrapes under the names of other programs, at a separate address.

Rendered at each scrape: such scrapes are rare.
"""

from nodeagent.components.exporter.exposition import render_exposition
from nodeagent.components.exporter.families.other_names import build_gpu_manager_families, build_hami_families
from nodeagent.components.exporter.scrape import TEXT_TYPE
from nodeagent.core.channels.bus import Bus
from nodeagent.core.clock import Clock
from nodeagent.edge.http.messages import Answer, Request, Response
from nodeagent.model.gpu import Inventory
from nodeagent.model.telemetry import NodeSample
from nodeagent.model.usage import FractionUsage
from nodeagent.rules.fractions.display import describe_use

_NO_GPUS = Inventory(generation=0)


class OtherNames:
    """Use of fractions under other programs' names."""

    def __init__(self, bus: Bus, clock: Clock, host: str) -> None:
        """`host` is the node's name in labels."""
        self._bus, self._clock, self._host = bus, clock, host

    async def answer_gpu_manager(self, _request: Request) -> Answer:
        """Under the names of Tencent's gpu-manager."""
        pods = describe_use(self._bus.read(FractionUsage) or FractionUsage(), self._bus.read(Inventory) or _NO_GPUS)
        return Response(render_exposition(build_gpu_manager_families(pods, self._host)), content_type=TEXT_TYPE)

    async def answer_hami(self, _request: Request) -> Answer:
        """Metrics of HAMi's monitor; use only while the sample is fresh."""
        usage, inventory = self._bus.read(FractionUsage) or FractionUsage(), self._bus.read(Inventory) or _NO_GPUS
        sample = self._bus.read(NodeSample)
        if sample is not None and sample.is_old(self._clock.wall()):
            sample = None
        families = build_hami_families(usage, inventory, sample, self._host)
        return Response(render_exposition(families), content_type=TEXT_TYPE)
