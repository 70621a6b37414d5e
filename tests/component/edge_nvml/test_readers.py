"""What the worker reads of a GPU, in the test's process on the fake library: odd answers, and odd libraries."""

import struct
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from nodeagent.edge.nvml.errors import NOT_SUPPORTED, SUCCESS, UNINTELLIGIBLE
from nodeagent.edge.nvml.worker.events import Watcher
from nodeagent.edge.nvml.worker.fabric import read_fabric
from nodeagent.edge.nvml.worker.fields import _ITEM, FieldReader
from nodeagent.edge.nvml.worker.gpm import METRICS, Profiler
from nodeagent.edge.nvml.worker.library import SONAME, load_library
from nodeagent.edge.nvml.worker.mig import read_mig
from nodeagent.edge.nvml.worker.query import Query, call
from nodeagent.edge.nvml.worker.sample import Sampler, read_unrepairable
from tests.component.edge_nvml.conftest import Load


def test_text_that_is_none_is_unintelligible(load_in_process: Load) -> None:
    """Bytes that are no text are a code, not an exception."""
    loaded = load_in_process("t4")
    loaded.fake.gpu(0).serial = b"\xff\xfe"
    query = Query(loaded.handle(0), {})
    assert call("nvmlDeviceGetSerial", query.handle) == (UNINTELLIGIBLE, None)
    assert query.ask("serial", "nvmlDeviceGetSerial") is None
    assert query.unreadable == [{"what": "serial", "reason": "the answer makes no sense (NVML code -2)"}]


def test_a_field_of_an_unknown_type_is_unintelligible(load_in_process: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value type that this agent does not know is not guessed at; the "unsupported" triple is absence."""
    loaded = load_in_process("t4")
    query = Query(loaded.handle(0), {})
    answers = {
        74: (1, 1, 99, bytes(8)),
        75: (0, 0, 0, bytes(8)),
        82: (1, 1, 1, struct.pack("=Q", 250)),
        83: (1, 1, 0, struct.pack("=d", float("nan"))),
        197: (1, 1, 5, struct.pack("=i4x", -3)),
    }

    def answer(_function: str, _handle: Any, _count: Any, buffer: Any) -> int:
        items = []
        for field, scope, *_ in _ITEM.iter_unpack(buffer.raw):
            timestamp, latency, kind, value = answers.get(field, (1, 1, 3, bytes(8)))
            items.append(_ITEM.pack(field, scope, timestamp, latency, kind, SUCCESS, value))
        buffer.raw = b"".join(items)
        return SUCCESS

    monkeypatch.setattr("nodeagent.edge.nvml.worker.query.call_library", answer)
    assert FieldReader(0).read_swift(query) == {
        "pcie_transmit_bytes": -3,
        "pcie_receive_bytes": 0,
        "recovery_action": 0,
    }
    assert [mark["what"] for mark in query.unreadable] == ["power_violation_nanoseconds", "energy_millijoules"]


def test_implausible_temperatures_are_absent(load_in_process: Load) -> None:
    """No card runs at 250 degrees: that is how some say that they have no sensor."""
    loaded = load_in_process("t4")
    loaded.fake.gpu(0).temperature = 250
    sample, _ = Sampler(loaded.handle(0)).read()
    assert "gpu_temperature_celsius" not in sample


def test_a_licensed_guest_says_so(load_in_process: Load) -> None:
    """Only inside a virtual machine with a vGPU is the licence asked for."""
    loaded = load_in_process("t4")
    gpu = loaded.fake.gpu(0)
    assert Sampler(loaded.handle(0)).read()[0]["vgpu_license_active"] is False
    gpu.virtualization_mode, gpu.license_supported = 2, 1
    assert Sampler(loaded.handle(0)).read()[0]["vgpu_license_active"] is False
    gpu.license_active = 1
    assert Sampler(loaded.handle(0)).read()[0]["vgpu_license_active"] is True
    loaded.fake.fail("nvmlDeviceGetGridLicensableFeatures_v4", 999)
    assert "vgpu_license_active" not in Sampler(loaded.handle(0)).read()[0]


def test_a_burst_of_processes_is_asked_for_again(load_in_process: Load) -> None:
    """The list may outgrow its buffer between the binding's two calls; the second try has them all."""
    loaded = load_in_process("t4")
    loaded.fake.add_process(0, 5, 1 << 20)
    original, answers = pynvml.nvmlDeviceGetComputeRunningProcesses_v3, [pynvml.NVMLError(7)]

    def burst(handle: Any) -> Any:
        if answers:
            raise answers.pop()
        return original(handle)

    pynvml.nvmlDeviceGetComputeRunningProcesses_v3 = burst
    try:
        sample, _ = Sampler(loaded.handle(0)).read()
    finally:
        pynvml.nvmlDeviceGetComputeRunningProcesses_v3 = original
    assert [process["pid"] for process in sample["processes"]] == [5]


@pytest.mark.parametrize("function", ["nvmlDeviceGetSupportedEventTypes", "nvmlEventSetCreate"])
def test_a_watch_that_cannot_begin_tells_its_code(load_in_process: Load, function: str) -> None:
    """Neither the question for kinds nor the set may fail unseen."""
    loaded = load_in_process("t4")
    watcher = Watcher(lambda _event: None)
    with loaded.fake.failing(function, 999):
        assert watcher.register(loaded.handle(0), "GPU-1") == 999
    loaded.fake.gpu(0).events_supported = 0x1
    assert watcher.register(loaded.handle(0), "GPU-1") == NOT_SUPPORTED


def test_an_event_by_another_handle_is_named_by_asking(load_in_process: Load) -> None:
    """A handle that was not registered is asked for its UUID; if it has none, nothing is told."""
    loaded = load_in_process()
    sent: list[dict[str, Any]] = []
    watcher = Watcher(sent.append)
    watcher.register(loaded.handle(0), "GPU-0")
    watcher._uuids.clear()
    loaded.fake.push_event(0, 8, 1)
    while not sent:
        time.sleep(0.005)
    loaded.fake.fail("nvmlDeviceGetUUID", 999)
    loaded.fake.push_event(0, 8, 2)
    loaded.end_watch()
    assert [one.get("gpu") for one in sent] == [loaded.fake.gpu(0).uuid.decode(), None]
    assert sent[-1] == {"ended": 999}


def test_without_the_privilege_for_some_kinds_xids_are_watched(load_in_process: Load) -> None:
    """A refusal of the whole mask is answered with the one kind that matters most."""
    loaded = load_in_process("t4")
    sent: list[dict[str, Any]] = []
    watcher = Watcher(sent.append)
    loaded.fake.fail("nvmlDeviceRegisterEvents", 4, times=1)
    assert watcher.register(loaded.handle(0), "GPU-0") == SUCCESS
    loaded.fake.push_event(0, 0x2, 1)
    loaded.fake.push_event(0, 0x8, 2)
    loaded.end_watch()
    assert [one.get("data") for one in sent] == [2, None]


@pytest.mark.long
def test_a_device_without_a_spoken_name_gets_a_computed_one(load_in_process: Load) -> None:
    """Old drivers name neither profiles nor devices; with the memory unknown too there is no name to trust."""
    loaded = load_in_process("a100-80gb-mig", hidden={"nvmlDeviceGetGpuInstanceProfileInfoV"})
    slot = loaded.fake.gpu(0).mig_devices[0]
    slot.name = b"NVIDIA A100"
    slot.compute_slices, slot.gpu_slices = 1, 2
    query = Query(loaded.handle(0), {})
    found = read_mig(query, loaded.fake.gpu(0).memory_total, "GPU-0")
    assert found is not None
    assert found["devices"][0]["profile"] == "1c.2g.10gb"
    assert found["profiles"][0]["name"] == "1g.10gb"
    nameless = read_mig(query, 0, "GPU-0")
    assert nameless is not None
    assert (len(nameless["devices"]), nameless["profiles"]) == (6, [])
    assert "profile of mig device 0" in [mark["what"] for mark in query.unreadable]


def test_a_device_that_is_gone_is_left_out_soon(load_in_process: Load) -> None:
    """A layout that changed between enumerations costs one sample with marks; the next has the devices that exist."""
    loaded = load_in_process("a100-80gb-mig")
    sampler = Sampler(loaded.handle(0))
    assert len(sampler.read()[0]["mig"]) == 7
    loaded.fake.cut(0, ["3g.40gb"])
    assert sampler.read()[0]["unreadable"] != []
    after, _ = sampler.read()
    assert [share["uuid"] for share in after["mig"]] == [loaded.fake.gpu(0).mig_devices[0].uuid.decode()]
    assert after["unreadable"] == []


def test_processes_are_merged_over_lists(load_in_process: Load) -> None:
    """One that computes and draws is one process, with the larger of its memories; unknown memory stays unknown."""
    loaded = load_in_process("t4")
    loaded.fake.add_process(0, 7, 100)
    loaded.fake.add_process(0, 7, 200, kind=1)
    loaded.fake.add_process(0, 8, 0xFFFFFFFFFFFFFFFF, gpu_instance=1)
    first, second = Sampler(loaded.handle(0)).read()[0]["processes"]
    assert (first["pid"], first["memory_used_bytes"], first["graphics"]) == (7, 200, True)
    assert (second["pid"], second["gpu_instance_id"], "memory_used_bytes" in second) == (8, 1, False)


def test_a_board_outside_a_fabric_has_none(load_in_process: Load) -> None:
    """State 0 means that there is nothing to register with."""
    loaded = load_in_process()
    loaded.fake.gpu(0).fabric_state = 0
    assert read_fabric(Query(loaded.handle(0), {})) is None


@pytest.mark.parametrize("word", [0, 1])
@pytest.mark.parametrize("flag", [0, 1])
def test_a_memory_beyond_repair_is_seen_in_either_structure(
    load_in_process: Load, monkeypatch: pytest.MonkeyPatch, word: int, flag: int
) -> None:
    """NVIDIA's header has the flag alone, its binding for Python a version in front of it."""

    def write(_handle: Any, place: Any) -> int:
        place._obj[word] = flag
        return SUCCESS

    handle = load_in_process().handle(0)
    library = SimpleNamespace(nvmlDeviceGetUnrepairableMemoryFlag_v1=write)
    monkeypatch.setattr(pynvml, "nvmlLib", library)
    assert read_unrepairable(Query(handle, {})) is (flag == 1)


def test_a_library_asked_for_by_name_tells_its_file(load_in_process: Load) -> None:
    """The dynamic loader's choice is found among what is mapped."""
    load_in_process("t4")
    found = Path(load_library(SONAME).path)
    assert found.is_absolute()
    assert found.name == SONAME


def test_counters_start_over_when_samples_do_not_match(load_in_process: Load) -> None:
    """A failure between two samples costs one reading, not the counters for good."""
    loaded = load_in_process()
    sampler = Sampler(loaded.handle(0))
    sampler.read()
    for function in ("nvmlGpmMetricsGet", "nvmlGpmSampleGet"):
        time.sleep(0.12)
        with loaded.fake.failing(function, 999):
            broken, _ = sampler.read()
        assert "profiling" not in broken
        time.sleep(0.12)
        assert "profiling" not in sampler.read()[0]
        time.sleep(0.12)
        assert "profiling" in sampler.read()[0]
    sampler.close()


def test_profiling_buffers_that_cannot_be_had_are_told(load_in_process: Load) -> None:
    """Out of memory in the driver costs the counters and nothing else; nothing is kept half."""
    loaded = load_in_process()
    sampler = Sampler(loaded.handle(0))
    loaded.fake.fail("nvmlGpmSampleAlloc", 20)
    sample, _ = sampler.read()
    assert [mark["what"] for mark in sample["unreadable"]] == ["profiling"]
    assert sample["gpu_temperature_celsius"] == 29


def test_all_gpus_ask_for_metrics_in_one_buffer(load_in_process: Load) -> None:
    """Each gets its own numbers for its own list, though the answers of others lay in the same place before."""
    loaded = load_in_process()
    loaded.fake.gpu(0).gpm[2], loaded.fake.gpu(1).gpm[2] = 250, 750
    first, second = (Query(loaded.handle(index), {}) for index in (0, 1))
    asked = [(Profiler(), first), (Profiler(), second), (Profiler(None, {2: ("busy", 1.0)}), first)]
    assert [profiler.read(query) for profiler, query in asked] == [None] * 3
    time.sleep(0.12)
    whole, other, short = (profiler.read(query) or {} for profiler, query in asked)
    assert (whole["sm_active"], other["sm_active"], short) == (2.5, 7.5, {"busy": 250.0})
    assert list(whole) == list(other) == [name for name, _ in METRICS.values()]
    for profiler, _ in asked:
        profiler.close()
