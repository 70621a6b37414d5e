"""The ports of the claims component: the kubelet, the journal and the API server."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from nodeagent.model.claims import ClaimStanding
from nodeagent.model.ports import ClaimApi, ClaimDriver, ClaimKeeper, PodListing


class ServeClaims(Protocol):
    """Keeps the driver registered with the kubelet and answers the kubelet's calls, until cancelled."""

    async def __call__(
        self, driver: ClaimDriver, report: Callable[[ClaimStanding], None], opened: Callable[[], None]
    ) -> None:
        """Serve; reports each change of the registration, and calls `opened` once calls can arrive.

        Raises:
            NodeagentError: A socket cannot be served.
        """
        ...


class Surroundings(NamedTuple):
    """The dependencies of the claims component."""

    keeper: ClaimKeeper
    serve: ServeClaims
    read_pods: Callable[[], Awaitable[PodListing]]
    open_api: Callable[[], Awaitable[ClaimApi]] | None
    """`None` without an API server."""
