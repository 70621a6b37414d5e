"""What the driver reports by itself, from the library's event queue to the agent's words."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import anyio
import pytest

from nodeagent.edge.nvml.agent.client import NvmlGpus
from nodeagent.edge.nvml.agent.event_stream import WATCH_RESUMED
from nodeagent.model.errors import DriverReleased, DriverUnavailable
from nodeagent.model.events import GpuEventReported, XidReported
from nodeagent.model.ids import GpuUuid
from nodeagent.model.ports import GpuEvent
from tests.component.edge_nvml.harness import STRICT, running_gpus
from tests.fakes.nvml.control import FakeNvml
from tests.support.waiting import wait_until

XID = 0x8


def uuid_of(fake: FakeNvml, index: int) -> GpuUuid:
    return GpuUuid(fake.gpu(index).uuid.decode())


class Watch:
    """A running iteration over the events."""

    def __init__(self, events: AsyncIterator[GpuEvent]) -> None:
        self._events = events

    async def take(self) -> GpuEvent:
        with anyio.fail_after(20):
            return await anext(self._events)


@asynccontextmanager
async def watching(gpus: NvmlGpus, fake: FakeNvml) -> AsyncIterator[Watch]:
    """Events from the moment on that all GPUs are registered."""
    async with aclosing(gpus.events()) as events:
        watch = Watch(events)
        async with anyio.create_task_group() as tasks:
            first: list[GpuEvent] = []

            async def take_first() -> None:
                first.append(await watch.take())

            tasks.start_soon(take_first)
            await wait_until(lambda: all(fake.calls("nvmlDeviceRegisterEvents", gpu=index) for index in range(8)))
            fake.push_event(0, XID, 1)
        assert first == [XidReported(gpu=uuid_of(fake, 0), xid=1)]
        yield watch


async def test_an_xid_is_reported_with_its_instance(fake: FakeNvml) -> None:
    """GPU-wide XIDs carry no instance, those of a MIG device carry both numbers."""
    async with running_gpus(fake) as gpus, watching(gpus, fake) as watch:
        fake.push_event(3, XID, 79)
        fake.push_event(4, XID, 31, gpu_instance=2, compute_instance=0)
        assert await watch.take() == XidReported(gpu=uuid_of(fake, 3), xid=79)
        wanted = XidReported(gpu=uuid_of(fake, 4), xid=31, gpu_instance_id=2, compute_instance_id=0)
        assert await watch.take() == wanted


async def test_other_events_have_names(fake: FakeNvml) -> None:
    """What is no XID comes under the name that components know, with its data."""
    async with running_gpus(fake) as gpus, watching(gpus, fake) as watch:
        for kind, name in ((0x100, "mig_layout"), (0x8000, "recovery_action"), (0x4000, "unavailable")):
            fake.push_event(1, kind, 4)
            assert await watch.take() == GpuEventReported(gpu=uuid_of(fake, 1), kind=name, data=4)


async def test_sampling_goes_on_while_the_watch_waits(fake: FakeNvml) -> None:
    """Waiting for events holds a thread of the worker, not the one that makes calls."""
    async with running_gpus(fake) as gpus, watching(gpus, fake) as watch:
        for number in range(5):
            assert len((await gpus.read_sample()).gpus) == 8
            fake.push_event(2, XID, 100 + number)
            assert await watch.take() == XidReported(gpu=uuid_of(fake, 2), xid=100 + number)


@pytest.mark.long
async def test_a_new_worker_watches_again_and_says_so(fake: FakeNvml) -> None:
    """After a gap every watched GPU is named, so that its levels are looked at; then events come as before."""
    async with running_gpus(fake, STRICT) as gpus, watching(gpus, fake) as watch:
        await gpus.read_sample()
        fake.hang_gpu(5)
        await gpus.read_sample()
        resumed = [await watch.take() for _ in range(7)]
        assert resumed == [
            GpuEventReported(gpu=uuid_of(fake, index), kind=WATCH_RESUMED) for index in range(8) if index != 5
        ]
        fake.push_event(6, XID, 48)
        assert await watch.take() == XidReported(gpu=uuid_of(fake, 6), xid=48)


@pytest.mark.long
async def test_a_gpu_that_answers_again_is_watched_again(fake: FakeNvml) -> None:
    """A GPU that was silent while the others were registered is added once it can be, and is named then."""
    async with running_gpus(fake, STRICT) as gpus, watching(gpus, fake) as watch:
        await gpus.read_sample()
        fake.hang_gpu(5)
        await gpus.read_sample()
        for _ in range(7):
            await watch.take()
        fake.clear()
        assert await watch.take() == GpuEventReported(gpu=uuid_of(fake, 5), kind=WATCH_RESUMED)
        fake.push_event(5, XID, 13)
        assert await watch.take() == XidReported(gpu=uuid_of(fake, 5), xid=13)


@pytest.mark.long
async def test_a_gpu_that_was_plugged_in_is_watched(fake: FakeNvml) -> None:
    """Once an enumeration has found it, its events are heard."""
    fake.unplug(7)
    async with running_gpus(fake) as gpus:
        await gpus.read_inventory()
        async with aclosing(gpus.events()) as events, anyio.create_task_group() as tasks:
            found: list[GpuEvent] = []

            async def take() -> None:
                found.append(await anext(events))

            tasks.start_soon(take)
            await wait_until(lambda: fake.calls("nvmlDeviceRegisterEvents", gpu=6) > 0)
            fake.plug(7)
            await gpus.read_inventory()
            await wait_until(lambda: found == [GpuEventReported(gpu=uuid_of(fake, 7), kind=WATCH_RESUMED)])
            tasks.cancel_scope.cancel()


async def test_a_failed_wait_is_tried_again_with_a_new_set(fake: FakeNvml) -> None:
    """A wait may end with "lost" without saying whose: no GPU is blamed, all are looked at."""
    async with running_gpus(fake) as gpus, watching(gpus, fake) as watch:
        fake.push_wait_error(15)
        resumed = [await watch.take() for _ in range(8)]
        assert {event.gpu for event in resumed} == {uuid_of(fake, index) for index in range(8)}
        fake.push_event(0, XID, 63)
        assert await watch.take() == XidReported(gpu=uuid_of(fake, 0), xid=63)


async def test_one_gpu_without_events_leaves_the_others_watched(fake: FakeNvml) -> None:
    """A GPU that cannot be registered is left out."""
    fake.gpu(7).events_supported = 0
    fake.fail("nvmlDeviceRegisterEvents", 999, gpu=6)
    async with running_gpus(fake) as gpus:
        await gpus.read_inventory()
        async with aclosing(gpus.events()) as events, anyio.create_task_group() as tasks:
            found: list[GpuEvent] = []

            async def take_first() -> None:
                found.append(await anext(events))

            tasks.start_soon(take_first)
            await wait_until(lambda: fake.calls("nvmlDeviceRegisterEvents", gpu=6) > 0)
            fake.push_event(5, XID, 94)
    assert found == [XidReported(gpu=uuid_of(fake, 5), xid=94)]


async def test_no_gpu_with_events_is_an_error(fake: FakeNvml) -> None:
    """If nothing can be watched, that is said: silence would look like health."""
    for index in range(8):
        fake.gpu(index).events_supported = 0
    async with running_gpus(fake) as gpus:
        with pytest.raises(DriverUnavailable, match="watch GPU events"):
            async with aclosing(gpus.events()) as events:
                await anext(events)


async def test_release_ends_the_watch(fake: FakeNvml) -> None:
    """Whoever watches learns that the driver was given up."""
    async with running_gpus(fake) as gpus, watching(gpus, fake) as watch:
        await gpus.release("upgrade")
        with pytest.raises(DriverReleased, match="upgrade"):
            await watch.take()
