"""What the agent relies on of an API server, on the real one: the bodies are those of `tests/contract`.

It runs without scheduler, controllers and kubelet, so that nothing but a test changes an object.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from tests.contract.apiserver.test_apply import *  # noqa: F403  the tests themselves
from tests.contract.apiserver.test_conditions import *  # noqa: F403
from tests.contract.apiserver.test_events import *  # noqa: F403
from tests.contract.apiserver.test_every_request import *  # noqa: F403
from tests.contract.apiserver.test_evictions import *  # noqa: F403
from tests.contract.apiserver.test_leases import *  # noqa: F403
from tests.contract.apiserver.test_objects import *  # noqa: F403
from tests.contract.apiserver.test_pages import *  # noqa: F403
from tests.contract.apiserver.test_ports import *  # noqa: F403
from tests.contract.apiserver.test_slices import *  # noqa: F403
from tests.contract.apiserver.test_watches import *  # noqa: F403
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.making.setup import read_token
from tests.integration.node_features import CRD
from tests.integration.real_api_server import install, render_api_server
from tests.support.wire.api_servers import ApiServerUnderTest, OpenApiServer, path_of

CLOSING_SECONDS = 0.1


@pytest.fixture
def open_api_server(api_server: Cluster, tmp_path: Path) -> OpenApiServer:
    """The real API server, in place of the stand-in."""
    layout, ports = api_server.layout, api_server.state.ports

    @asynccontextmanager
    async def opened() -> AsyncIterator[ApiServerUnderTest]:
        server = render_api_server(
            f"https://127.0.0.1:{ports.api}",
            f"http://127.0.0.1:{ports.etcd_client}",
            {user: read_token(layout, user) for user in ("admin", "stranger")},
            layout.certs / "ca.crt",
            tmp_path,
        )
        await install(server, CRD, path_of("nodefeatures", everywhere=True))
        yield server
        # The library closes connections with TLS some turns of the loop after their session, and tells nobody.
        await anyio.sleep(CLOSING_SECONDS)

    return opened
