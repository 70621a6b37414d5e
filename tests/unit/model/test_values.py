"""Laws that hold for every value of the vocabulary."""

import inspect
import pkgutil
from importlib import import_module

import msgspec
import pytest

import nodeagent.model
from nodeagent.model import errors
from nodeagent.model.allocation import Allocation, AllocationTable
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.events import FACTS, STATES
from nodeagent.model.health import DeviceHealth, HealthReport, Verdict
from nodeagent.model.ids import DeviceId, ResourceName, parse_pci_address
from nodeagent.model.values import Value
from tests.support.samples import make_gpu, make_inventory, make_mig, make_uuid

PREFIX = "nodeagent.model."


def _all_values() -> list[type[Value]]:
    modules = [import_module(module.name) for module in pkgutil.iter_modules(nodeagent.model.__path__, PREFIX)]
    classes = {thing for module in modules for _, thing in inspect.getmembers(module, inspect.isclass)}
    return sorted((thing for thing in classes if issubclass(thing, Value)), key=lambda thing: thing.__name__)


@pytest.mark.parametrize("value", _all_values(), ids=lambda value: value.__name__)
def test_every_value_is_frozen_and_says_what_it_is(value: type[Value]) -> None:
    """A value that could change would make the bus lie; one without a sentence would stay a riddle."""
    assert value.__struct_config__.frozen
    assert value.__doc__


def test_every_event_stands_once_in_the_list() -> None:
    """A type is either a state or a fact, and named once."""
    assert len(set(STATES) | set(FACTS)) == len(STATES) + len(FACTS)


def test_an_inventory_survives_its_json_form() -> None:
    """What the API and the worker protocol send can be read back equal."""
    inventory = make_inventory(3)
    assert msgspec.json.decode(msgspec.json.encode(inventory), type=type(inventory)) == inventory


def test_codes_are_unique_and_dependencies_exist() -> None:
    """Alerts name codes, so a code means one thing, and what hides a condition is one itself."""
    codes = [definition.code for definition in CATALOGUE]
    assert len(codes) == len(set(codes))
    for definition in CATALOGUE:
        assert set(definition.depends_on) <= set(codes)
        assert definition.title
        assert definition.remedy


def test_find_gpu_knows_gpus_and_their_parts() -> None:
    """A MIG device leads to its GPU, a stranger to nothing."""
    gpu = make_gpu(1, mig=make_mig(1, 2))
    inventory = type(make_inventory())(generation=1, gpus=(make_gpu(0), gpu))
    assert inventory.find_gpu(make_uuid(1)) is gpu
    assert inventory.find_gpu(gpu.mig_devices[1].uuid) is gpu
    assert inventory.find_gpu("GPU-none") is None
    assert inventory.device_uuids == (make_uuid(0), gpu.uuid, *(device.uuid for device in gpu.mig_devices))


def test_lookups_answer_none_rather_than_guess() -> None:
    """A missing device has no verdict and no holder."""
    health = DeviceHealth(device=make_uuid(0), gpu=make_uuid(0), verdict=Verdict.HEALTHY, since_seconds=0.0)
    report = HealthReport(generation=1, devices=(health,))
    assert report.find_device(make_uuid(0)) is health
    assert report.find_device(make_uuid(1)) is None
    held = Allocation(number=1, resource=ResourceName("r"), devices=(DeviceId("a"),), since_seconds=0.0)
    table = AllocationTable(allocations=(held,))
    assert table.holders("a") == (held,)
    assert table.holders("b") == ()


def test_only_the_ready_phase_is_ready() -> None:
    """No other phase lets GPUs be handed out."""
    assert [phase for phase in DriverPhase if DriverState(phase=phase).ready] == [DriverPhase.READY]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (errors.DriverUnavailable("load the library", "no such file"), "cannot load the library: no such file"),
        (errors.DriverMismatch("", "580.1"), "of unknown version does not fit kernel module 580.1"),
        (errors.DriverMismatch("580.1", ""), "580.1 does not fit kernel module of unknown version"),
        (errors.DriverStuck("read_sample", 1.5), "read_sample did not come back within 1.5 s"),
        (errors.DriverReleased("upgrade"), "nodeagent resume"),
        (errors.GpuUnknown("9", ("0", "1")), "known are 0, 1"),
        (errors.GpuUnknown("9"), "no GPU '9'"),
        (errors.GpuLost("0", "bus"), "GPU 0 is lost: bus"),
        (errors.RequestInvalid("r/gpu", "no device"), 'for "r/gpu": invalid request: no device'),
        (errors.DeviceUnknown("r/gpu", "d"), 'allocation request for "r/gpu": invalid request: unknown device: d'),
        (errors.DeviceUnhealthy("d", "xid 79"), "device d is unhealthy: xid 79"),
        (errors.DeviceHeld("d", "ns/pod"), "held by ns/pod"),
        (errors.JournalUnavailable("/j", "disk full"), "/j: disk full"),
        (errors.FaultUnknown("x", ("xid", "lost")), "choose one of xid, lost"),
    ],
)
def test_errors_write_themselves(error: errors.NodeagentError, words: str) -> None:
    """Each error names what, on what, and why, in one line."""
    assert words in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize("text", ["0000:1b:00.0", "00000000:1B:00.0", "1b:00.0", " 0000:1B:00.0 "])
def test_every_spelling_of_a_pci_address_becomes_the_one_of_sysfs(text: str) -> None:
    """NVML, lspci and sysfs spell the same function differently."""
    assert parse_pci_address(text) == "0000:1b:00.0"


@pytest.mark.parametrize("text", ["", "1b:00", "1b.0", "a:b:c:d.0", "zz:00.0"])
def test_what_is_no_pci_address_is_refused(text: str) -> None:
    """A malformed address is an error, never a guess."""
    with pytest.raises(ValueError, match=r"PCI address|invalid literal"):
        parse_pci_address(text)
