"""Who it is that starts: by the kubelet's list and its notes, at once, later, or not at all, but never by a guess."""

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.components.fractions.component import NAME_PAUSES_SECONDS
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.errors import (
    CallerUnclear,
    NoRoom,
)
from nodeagent.model.events import FractionBound
from nodeagent.model.ids import DeviceId
from nodeagent.model.ports import PodListing
from tests.component.fractions.harness import World
from tests.component.fractions.test_starts import fill
from tests.support.journals import MEMORY

pytestmark = pytest.mark.virtual_time


async def test_nobody_is_guessed(world: World) -> None:
    """Until the kubelet's records say whose the ids are the container does not start, and nothing is bound."""
    async with world.running():
        held = await world.admit("train", 30, 32)
        listing, checkpoint = world.kubelet.listing, world.kubelet.checkpoint
        world.kubelet.listing, world.kubelet.checkpoint = PodListing(), None
        with pytest.raises(CallerUnclear, match="has not written down yet"):
            await world.start(held)
        world.kubelet.listing = None
        with pytest.raises(CallerUnclear, match=r"cannot list pods.*; cannot read the checkpoint|cannot read"):
            await world.start(held)
        assert world.table.bindings == {}
        world.kubelet.listing, world.kubelet.checkpoint = listing, checkpoint
        await world.start(held)


@pytest.mark.parametrize("missing", ["listing", "checkpoint"])
async def test_one_of_the_kubelets_records_is_enough(world: World, missing: str) -> None:
    """The other one may be missing, or late, and the next start still finds the binding."""
    async with world.running():
        held = await world.admit("train", 30, 32)
        setattr(world.kubelet, missing, None)
        binding = await world.start(held)
        assert binding.pod == (
            PodIdentity(namespace="", name="", uid=held.pod.uid)
            if missing == "listing"
            else PodIdentity(namespace="ns", name="train")
        )
        await anyio.sleep(60)
        assert world.table.bindings == {binding.number: binding}
        world.note()
        complete = replace(binding, pod=held.pod)
        assert await world.start(held) == complete
        assert await world.start(held) == complete
        assert world.durable_bindings() == [complete]
    assert len(world.facts(FractionBound)) == 1


@pytest.mark.parametrize("missing", ["listing", "checkpoint"])
async def test_who_it_was_is_found_out_later(world: World, missing: str) -> None:
    """At the next look, without another start; the end of a pod of which half is known could not be told for sure."""
    async with world.running():
        held = await world.admit("train", 30, 32)
        setattr(world.kubelet, missing, None)
        binding = await world.start(held)
        world.note()
        await anyio.sleep(11)
        assert world.durable_bindings() == [replace(binding, pod=held.pod)]


async def test_a_list_that_is_silent_for_a_moment_is_asked_again(world: World) -> None:
    """Soon, and not at the next look at everything: the pod may be gone by then."""
    async with world.running():
        held = await world.admit("train", 30, 32)
        listing, world.kubelet.listing = world.kubelet.listing, None
        binding = await world.start(held)
        assert not binding.pod.name
        world.kubelet.listing = listing
        await anyio.sleep(NAME_PAUSES_SECONDS[1])
        assert world.durable_bindings() == [replace(binding, pod=held.pod)]


async def test_the_list_is_asked_only_where_the_notes_do_not_prove_it(world: World) -> None:
    """They carry the name that was told at the admission; the pod's name is found out after the answer."""
    async with world.running():
        held = await world.admit("train", 30, 32)
        asked = world.kubelet.lists_asked
        await world.plugin(MEMORY).pre_start(held.memory)
        await world.plugin().pre_start(held.cores)
        assert world.kubelet.lists_asked == asked
        assert world.facts(FractionBound) == []
        await anyio.sleep(NAME_PAUSES_SECONDS[0])
        assert world.kubelet.lists_asked == asked + 1
        (fact,) = world.facts(FractionBound)
        assert fact.pod == held.pod

        late = await world.admit("late", 30, 32)
        notes = world.kubelet.checkpoint
        assert notes is not None
        world.kubelet.checkpoint = replace(
            notes, containers=tuple(replace(each, cdi_names=()) for each in notes.containers)
        )
        await world.plugin().pre_start(late.cores)
        assert world.kubelet.lists_asked == asked + 2


async def test_notes_of_two_moments_are_no_reason_to_guess(world: World) -> None:
    """Two containers of a pod that share their ids and no memory: the list is asked, and tells no more."""
    async with world.running():
        held = await world.admit("train", 30, 32)
        notes = world.kubelet.checkpoint
        assert notes is not None
        core, memory = notes.containers
        other = (replace(core, container="init"), replace(memory, container="init", devices=(DeviceId("else"),)))
        world.kubelet.checkpoint = replace(notes, containers=(*notes.containers, *other))
        asked = world.kubelet.lists_asked
        with pytest.raises(CallerUnclear, match="hold the same ids and differ"):
            await world.plugin().pre_start(held.cores)
        assert world.kubelet.lists_asked == asked + 1


async def test_a_name_that_cannot_be_written_down_is_found_out_later(world: World) -> None:
    """The container has started; the next look tries again."""
    async with world.running():
        held = await world.admit("train", 30, 32)
        await world.plugin().pre_start(held.cores)
        world.store.failure = "no space left on device"
        await anyio.sleep(NAME_PAUSES_SECONDS[0])
        assert world.facts(FractionBound)[0].pod.name == ""
        world.store.failure = ""
        await anyio.sleep(60)
        assert [each.pod for each in world.durable_bindings()] == [held.pod]


async def test_a_container_that_was_told_of_as_waiting_is_told_of_by_the_same_name_later(world: World) -> None:
    """While somebody waits the names of all who start are asked for."""
    async with world.running():
        first, _ = await fill(world)
        third = await world.admit("third", 30, 80)
        with pytest.raises(NoRoom):
            await world.plugin().pre_start(third.cores)
        assert set(world.details("part-no-room")) == {"ns/third (main)"}
        world.end(first)
        await anyio.sleep(60)
        await world.plugin().pre_start(third.cores)
        assert world.details("part-no-room") == {}


async def test_an_init_container_is_known_by_the_others_of_its_pod(world: World) -> None:
    """The kubelet's list leaves it out, and its notes have no names."""
    async with world.running():
        first = await world.admit("train", 30, 32, container="init-data")
        await world.admit("train", 90, 64, share=first)
        assert (await world.start(first)).pod == first.pod
