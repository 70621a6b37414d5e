from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from tests.support.wire.claim_kubelets import ClaimKubeletUnderTest, OpenClaimKubelet, StandInClaimKubelet

__all__ = ["open_claim_kubelet"]


@pytest.fixture
def open_claim_kubelet(short_dir: Path) -> OpenClaimKubelet:
    """The stand-in as the kubelet that asks a driver of claims."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[ClaimKubeletUnderTest]:
        async with anyio.create_task_group() as tasks:
            kubelet = StandInClaimKubelet(short_dir, tasks)
            for directory in (kubelet.plugins_dir, kubelet.registry_dir):
                directory.mkdir()
            try:
                yield kubelet
            finally:
                await kubelet.aclose()

    return opened
