from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.fakes.apiserver import FakeApiServer
from tests.support.wire.api_servers import ApiServerUnderTest, OpenApiServer


@pytest.fixture
def open_api_server(tmp_path: Path) -> OpenApiServer:
    """The stand-in as the API server under test."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[ApiServerUnderTest]:
        async with FakeApiServer().running() as server:

            async def protect(application: str) -> None:
                budgets = server.store.budgets
                (server.store.crowded if application in budgets else budgets).add(application)

            async def forget() -> None:
                server.store.forget()

            server.pace = 0.1
            assert server.token is not None
            yield ApiServerUnderTest(
                server.url, server.token, tmp_path, None, None, server.stranger, protect=protect, forget=forget
            )

    return opened
