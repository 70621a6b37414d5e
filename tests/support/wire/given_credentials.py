"""Credentials for tests about something else: a kubeconfig that says server and token, read without a child."""

import json
from pathlib import Path

from msgspec import Struct

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.kube.client_configuration import ClientConfiguration, Way


class GivenCredentials(Struct, frozen=True):
    """Those of a kubeconfig as the stand-ins write it; `Kubeconfig` reads the same file to the same end."""

    path: Path

    @property
    def where(self) -> str:
        return str(self.path)

    def read_namespace(self) -> str:
        return "default"

    async def load(self, worker: WorkerThread, *, is_refused: bool = False) -> ClientConfiguration:
        document = json.loads(self.path.read_text())
        (cluster,), (user,) = document["clusters"], document["users"]
        return ClientConfiguration(Way(cluster["cluster"]["server"]), f"Bearer {user['user']['token']}")
