"""Devices of a class as GPUs to be given in fractions."""

import pytest

from nodeagent.components.fractions.class_views import list_whole_holders, plan_class_view, plan_told
from nodeagent.components.fractions.decide import FractionView
from nodeagent.config.sections.fractions import FractionsSettings
from nodeagent.model.devices import DeviceClassState, HostDevice, Standing
from nodeagent.model.ids import DeviceId, GpuUuid
from nodeagent.model.journal import Enforcement, GpuFraction
from tests.component.fractions.classes import AMD, AMD_CORE, AMD_MEMORY, D0, D1, hold_whole, make_device
from tests.support.fractions import make_bound, part
from tests.support.gpus import gpu_uuid
from tests.support.placement import GIB


def plan(*devices: HostDevice, lack: str = "", holders: dict[str, str] | None = None) -> FractionView:
    state = DeviceClassState(resource=AMD, divisible=True, devices=devices)
    return plan_class_view(state, FractionsSettings(memory_overcommit_ratio=2.0), lack, holders or {})


def test_each_device_counts_by_itself_and_memory_is_never_promised_twice() -> None:
    view = plan(make_device(D0), make_device(D1, memory_bytes=GIB + 1))
    assert {name: len(ids) for name, ids in view.lists.items()} == {AMD_CORE: 200, AMD_MEMORY: 256 + 4}
    assert [each.memory_bytes for each in view.capacities] == [64 * GIB, GIB + 1]
    assert view.held == {}
    assert view.device_class == AMD


@pytest.mark.parametrize(
    ("device", "lack", "holder", "reason"),
    [
        (make_device(D0), "no CDI", "a/b", "no CDI"),
        (make_device(D0), "", "a/b", "held whole by a/b"),
        (make_device(D0, reason="too hot"), "", "", "too hot"),
        (make_device(D0, memory_bytes=None), "", "", "give memory_mib of the class amd.com/gpu"),
    ],
)
def test_what_speaks_against_a_device(device: HostDevice, lack: str, holder: str, reason: str) -> None:
    """In the order of what a person has to see to first."""
    view = plan(device, lack=lack, holders={D0: holder} if holder else None)
    assert reason in view.unfit[D0]
    assert not any(each.healthy for ids in view.lists.values() for each in ids)
    assert view.held.keys() == {D0}


def test_a_device_that_is_gone_is_lost() -> None:
    gone = HostDevice(id=DeviceId(D0), name="d0", nodes=("d0",), standing=Standing.GONE, reason="it went")
    assert plan(gone).gpus[0].lost == "it went"


def test_a_view_owns_the_bindings_of_its_class() -> None:
    view = plan(make_device(D0))
    of_gpu = make_bound(1, (), part(0, 30, 8))
    own, other = (
        make_bound(2, (), GpuFraction(gpu=GpuUuid(device), cores=30, memory_bytes=GIB)) for device in (D0, "DEV-x-1-d0")
    )
    assert [view.owns(each) for each in (of_gpu, own, other)] == [False, True, False]


def test_holders_of_whole_devices_are_named() -> None:
    assert list_whole_holders(None) == {}
    assert list_whole_holders(hold_whole(D0)) == {D0: "ml/before (main)"}


def test_a_container_is_told_each_of_its_devices() -> None:
    binding = make_bound(1, (), part(0, 100, 32), part(1, 100, 16))
    assert binding.enforcement is not Enforcement.COUNTED
    assert plan_told(binding) == {
        "NODEAGENT_PART_DEVICES": f"{gpu_uuid(0)},{gpu_uuid(1)}",
        "NODEAGENT_PART_CORES": "100,100",
        "NODEAGENT_PART_MEMORY_MIB": "32768,16384",
    }
