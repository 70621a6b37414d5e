"""What each resource's answers are made of."""

from nodeagent.components.deviceplugin.advertise import View
from nodeagent.components.deviceplugin.answer import find_held, make_plan
from nodeagent.config.schema import Settings
from nodeagent.config.sections.plugin import DevicePluginSettings
from nodeagent.model.allocation import Allocation, AllocationTable
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.plugin import HandoutFacts
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory

GPU, OTHER = ResourceName("nvidia.com/gpu"), ResourceName("nvidia.com/other")
TWO = make_inventory([make_gpu(0), make_gpu(1)])


def test_a_plan_is_kept_while_what_it_follows_from_is_the_same() -> None:
    first = make_plan(None, TWO, Settings(), frozenset())
    assert make_plan(first, TWO, Settings(), frozenset()) is first
    assert make_plan(first, make_inventory([make_gpu(0)]), Settings(), frozenset()) is not first
    settings = Settings(device_plugin=DevicePluginSettings(mig_strategy="mixed"))
    assert make_plan(first, TWO, settings, frozenset()) is not first
    closed = make_plan(first, TWO, Settings(), frozenset({gpu_uuid(0)}))
    assert list(closed.known[GPU]) == [DeviceId(gpu_uuid(1))]


def test_a_resource_that_is_offered_no_more_has_no_devices() -> None:
    """It is served for those who still have some, and prefers nothing."""
    plan, view = make_plan(None, TWO, Settings(), frozenset()), View(TWO, None)
    offer = plan.offer(GPU, view, Settings(), HandoutFacts())
    assert (len(offer.resource.devices), set(offer.known)) == (2, {DeviceId(gpu_uuid(0)), DeviceId(gpu_uuid(1))})
    gone = plan.offer(OTHER, view, Settings(), HandoutFacts())
    assert (gone.resource.name, gone.resource.devices, gone.known) == (OTHER, (), {})


def test_what_is_held_is_told_by_resource() -> None:
    rows = [(GPU, "a"), (OTHER, "b"), (GPU, "c")]
    table = AllocationTable(
        allocations=tuple(
            Allocation(number=number, resource=resource, devices=(DeviceId(device),), since_seconds=0.0)
            for number, (resource, device) in enumerate(rows)
        )
    )
    assert find_held(table) == {GPU: ("a", "c"), OTHER: ("b",)}
