"""Whom the part that makes claims ready asks: the kubelet, the journal and the API server, as it needs them."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from nodeagent.model.claims import ClaimStanding
from nodeagent.model.ports import ClaimApi, ClaimDriver, ClaimKeeper, PodListing


class ServeClaims(Protocol):
    """Keeps the driver registered with the kubelet and its questions answered, until cancelled."""

    async def __call__(
        self, driver: ClaimDriver, report: Callable[[ClaimStanding], None], opened: Callable[[], None]
    ) -> None:
        """Serve; reports each change of what the kubelet knows, and says when it can be asked.

        Raises:
            NodeagentError: a socket cannot be served.
        """
        ...


class Surroundings(NamedTuple):
    """Whom the part asks."""

    keeper: ClaimKeeper
    serve: ServeClaims
    read_pods: Callable[[], Awaitable[PodListing]]
    open_api: Callable[[], Awaitable[ClaimApi]] | None
    """None where there is no API server."""
