"""The laws of any GPU, on the fake."""

from collections.abc import Awaitable, Callable

import pytest

from nodeagent.edge.nvml.agent.client import NvmlGpus
from nodeagent_sim.gpus.profile import list_profiles
from tests.component.edge_nvml.conftest import MakeFake
from tests.component.edge_nvml.harness import running_gpus
from tests.component.edge_nvml.laws import LAWS


@pytest.mark.nightly
@pytest.mark.parametrize("profile", list_profiles())
@pytest.mark.parametrize("law", LAWS)
async def test_the_fake_keeps_the_laws_of_any_gpu(
    make_fake: MakeFake, profile: str, law: Callable[[NvmlGpus], Awaitable[None]]
) -> None:
    """What is asserted of real hardware holds on every fake board."""
    async with running_gpus(make_fake(profile)) as gpus:
        await law(gpus)
