"""Claims that nobody asks about any more: put away without being asked to, each for itself, and never on suspicion."""

import anyio
import pytest

from nodeagent.components.claims.reconcile import POLL_INTERVAL_SECONDS
from nodeagent.model.allocation import ClaimedDevice
from nodeagent.model.errors import SpecsUnavailable
from nodeagent.model.ports import PodListing
from tests.component.claims.harness import FakeSpecs, World, api
from tests.support.claims import (
    DRIVER,
    POD,
    POOL,
    gpu_config,
    make_claim,
    make_config,
    make_reference,
    make_result,
)

pytestmark = pytest.mark.virtual_time

HELD = PodListing(
    claimed=(
        ClaimedDevice(
            pod=POD, container="main", claim="c1", claim_namespace="ns", driver=DRIVER, pool=POOL, device="gpu-0"
        ),
    )
)
"""A container has the claim c1 by the kubelet's list."""


async def test_a_claim_that_nobody_has_any_more_is_put_away_without_being_asked_to(world: World) -> None:
    """By two looks that agree; a source that cannot be read releases nothing."""
    api(world)
    assert world.api is not None
    async with world.running():
        await world.prepare(make_reference(), make_reference("claim-2", "c2"))
        world.specs.files["left-over"] = ()
        world.kubelet.listing = HELD
        world.api.claims.clear()
        world.api.broken = "away"
        await anyio.sleep(290)
        assert len(world.prepared) == 2
        assert "left-over" not in world.specs.files
        world.api.broken = ""
        world.kubelet.listing = None
        await anyio.sleep(300)
        assert len(world.prepared) == 2
        world.kubelet.listing = HELD
        await anyio.sleep(50)
        assert len(world.prepared) == 2
        await anyio.sleep(60)
        assert list(world.prepared) == ["claim-1"]
    world.api = None
    async with world.running():
        world.kubelet.listing = PodListing()
        await anyio.sleep(300)
        assert list(world.prepared) == ["claim-1"]


async def test_one_that_cannot_be_put_away_does_not_keep_the_others_from_it(world: World) -> None:
    """Nobody else would say why it stays: the kubelet does not ask about it any more."""
    api(world)
    assert world.api is not None
    mps = make_config(gpu_config({"strategy": "MPS"}))
    world.api.put(make_claim(make_result(), configs=(mps,)))
    async with world.running():
        await world.prepare(make_reference(), make_reference("claim-2", "c2"))
        world.mps.broken = "GPU 0 does not answer"
        world.api.claims.clear()
        world.kubelet.listing = PodListing()
        await anyio.sleep(3 * POLL_INTERVAL_SECONDS)
        assert list(world.prepared) == ["claim-1"]
        (told,) = (one for one in world.conditions.all_set() if one.code == "claim-refused")
        assert told.detail == "ns/c1: cannot be put away: GPU 0 does not answer"
        world.mps.broken = ""
        await anyio.sleep(POLL_INTERVAL_SECONDS)
        assert (world.prepared, world.codes) == ({}, [])


async def test_a_claim_that_another_of_its_name_has_followed_is_put_away(world: World) -> None:
    """The kubelet's list has names alone: who has the newer one does not have the older one's GPU."""
    api(world)
    assert world.api is not None
    async with world.running():
        await world.prepare()
        world.api.put(make_claim(make_result("gpu-3"), uid="claim-9"))
        await world.prepare(make_reference("claim-9"))
        world.kubelet.listing = HELD
        await anyio.sleep(3 * POLL_INTERVAL_SECONDS)
        assert list(world.prepared) == ["claim-9"]


async def test_a_claim_is_put_away_without_a_driver_and_its_file_goes_later(world: World) -> None:
    """A pod must be able to end; the file is taken away when somebody can."""
    api(world)

    def find_no_writer() -> FakeSpecs:
        raise SpecsUnavailable

    async with world.running():
        await world.prepare()
        makers = world.makers
    world.makers = makers._replace(specs=find_no_writer)
    async with world.running():
        assert await world.unprepare() == {"claim-1": ""}
        assert (world.prepared, sorted(world.specs.files)) == ({}, ["claim-1"])
    world.makers = makers
    async with world.running():
        await anyio.sleep(1)
        assert world.specs.files == {}
