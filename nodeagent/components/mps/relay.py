"""Handle for the current MPS component: the component is built anew after each crash, its clients are not."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from nodeagent.model.errors import MpsRefused
from nodeagent.model.ids import GpuUuid
from nodeagent.model.mps import MpsAccess, MpsLimits
from nodeagent.model.ports import MpsClaims


class MpsClaimsRelay:
    """Implements `model.ports.MpsClaims` for as long as the process lives."""

    def __init__(self) -> None:
        self._keeper: MpsClaims | None = None

    @contextmanager
    def lead_to(self, keeper: MpsClaims) -> Iterator[None]:
        """Forward calls to the given component for as long as the block lasts."""
        self._keeper = keeper
        try:
            yield
        finally:
            self._keeper = None

    async def open_claim(self, claim: str, gpus: Sequence[GpuUuid], limits: MpsLimits) -> MpsAccess:
        """Have a daemon for these GPUs of a claim.

        Raises:
            MpsRefused: There is no such daemon, or no component looks after daemons at the moment.
        """
        return await self._find().open_claim(claim, gpus, limits)

    async def close_claim(self, claim: str) -> None:
        """End the daemons of a claim.

        Raises:
            MpsRefused: A GPU could not be given back, or no component looks after daemons at the moment.
        """
        await self._find().close_claim(claim)

    def _find(self) -> MpsClaims:
        if self._keeper is None:
            raise MpsRefused(
                "this agent does not look after MPS daemons of claims: set mps.claims to true; where it is, the part"
                " waits for the driver's GPUs or has failed, see `nodeagent status`"
            )
        return self._keeper
