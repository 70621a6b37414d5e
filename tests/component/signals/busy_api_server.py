"""An API server with few seats, in a process of its own: `python -m tests.component.signals.busy_api_server SEATS`.

It carries out as many requests at a time as it has seats, and refuses all others for a second: as API Priority and
Fairness does at a level without a queue. The first line that it says is its port, and the last one, once its input is
at its end, its counts.
"""

import asyncio
import json
import sys

import anyio
from aiohttp import web

from tests.fakes.kube.server import KubeServer

STORE_SECONDS = 0.01
"""How long a request keeps its seat besides its own work, as for the store to be durable."""
REFUSAL = {"kind": "Status", "code": 429, "message": "too many requests, please try again later"}


class BusyApiServer(KubeServer):
    """Whoever asks is an administrator."""

    def __init__(self, seats: int) -> None:
        super().__init__()
        self.token = None
        self.admitted = self.refused = self.most = 0
        self._seats, self._taken = seats, 0

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if self._taken >= self._seats:
            self.refused += 1
            return web.json_response(REFUSAL, status=429, headers={"Retry-After": "1"})
        self._taken += 1
        self.admitted += 1
        self.most = max(self.most, self._taken)
        try:
            await anyio.sleep(STORE_SECONDS)
            return await super()._serve(request)
        finally:
            self._taken -= 1

    def counts(self) -> dict[str, int]:
        events = self.store.objects["events"].values()
        pods = {each["regarding"]["uid"] for each in events}
        counts = {"events": len(events), "pods": len(pods), "admitted": self.admitted}
        return counts | {"refused": self.refused, "most": self.most}


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def serve(seats: int) -> None:
    server = BusyApiServer(seats)
    async with server.running():
        say(str(server.port))
        await asyncio.to_thread(sys.stdin.read)
        say(json.dumps(server.counts()))


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
