"""Knows what the pods of this node ask for, by the API server; without one, nothing.

Refuses to hold up the start of a container for long: a request says all that must be known, but for one profile.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Final, Protocol

import anyio

from nodeagent.components.fractions.bind import is_same_pod
from nodeagent.core.channels.gathered import Gathered
from nodeagent.core.log.lines import get_logger
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.errors import NodeagentError
from nodeagent.model.parts import PodRequest

REQUEST_SECONDS: Final = 1.0
"""How long a start waits for the API server to know of a pod that the kubelet knows."""
RETRY_SECONDS: Final = 5.0


class PodRequests(Protocol):
    """What pods ask for, by the API server."""

    def follow(self) -> AsyncGenerator[Mapping[tuple[str, str], PodRequest], None]:
        """All pods of the node by namespace and name, now and after each change, until something breaks.

        Raises:
            NodeagentError: they cannot be followed (any longer).
        """
        ...


class Requests:
    """A task of the component `fractions`."""

    def __init__(self, open_pods: Callable[[], Awaitable[PodRequests]] | None) -> None:
        self._open_pods = open_pods
        self._known = Gathered[Mapping[tuple[str, str], PodRequest]]({})
        self._is_following = False
        self._log = get_logger(component="fractions")

    async def run(self) -> None:
        """Know what pods ask for and what schedulers wrote on them; what was known last is better than nothing."""
        if self._open_pods is None:
            return
        pods = await self._open_pods()
        while True:
            try:
                async with aclosing(pods.follow()) as tables:
                    async for table in tables:
                        self._is_following = True
                        self._known.put(table)
            except NodeagentError as error:
                self._log.warning("pod_requests_not_followed", error=str(error))
            self._is_following = False
            await anyio.sleep(RETRY_SECONDS)

    async def find(self, pod: PodIdentity) -> PodRequest | None:
        """What the API server says of a pod; it may know of it a moment later than the kubelet."""
        if self._open_pods is None:
            return None
        known = self._known.value
        # Nothing new is to be waited for where nobody tells it, such as without the right to follow pods.
        with anyio.move_on_after(REQUEST_SECONDS if self._is_following else 0):
            while True:
                found = known.get((pod.namespace, pod.name))
                if found is not None and is_same_pod(found.pod, pod):
                    return found
                known = await self._known.wait_other(known, 0.0)
        return None
